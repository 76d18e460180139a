"""The wheel carries a library for one platform and works with any Python 3: py3-none-<platform>."""
import os

from setuptools import setup
from wheel.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", os.environ.get("KVOPT_WHEEL_PLATFORM") or super().get_tag()[2]


setup(version=os.environ.get("KVOPT_VERSION", "0.0.0"), cmdclass={"bdist_wheel": PlatformWheel})
