// Work reports how far it is; work within work does not.
#include "support/progress.h"

#include <gtest/gtest.h>
#include <vector>

namespace kvopt {
namespace {

class Recorder : public ProgressListener {
public:
  bool begin(const std::string& what) override {
    if (isOpen)
      return false;
    isOpen = true;
    text += what + ":";
    return true;
  }
  void report(double done, double total) override {
    text += " " + std::to_string(static_cast<int>(done)) + "/" +
            std::to_string(static_cast<int>(total));
  }
  void hide() override { text += " hidden"; }
  void end() override {
    isOpen = false;
    text += " end;";
  }

  bool isOpen = false;
  std::string text;
};

TEST(Progress, CountsUnits) {
  Recorder recorder;
  {
    Progress progress(&recorder, "comparing");
    progress.expect(10);
    progress.advance(4);
    progress.expect(2);
    progress.advanceTo(3); // It does not go back.
    progress.hide();
    progress.complete();
  }
  EXPECT_EQ(recorder.text, "comparing: 0/10 4/10 4/12 4/12 hidden 12/12 end;");
}

TEST(Progress, IsNeverMoreThanAll) {
  Recorder recorder;
  Progress progress(&recorder, "comparing");
  progress.expect(2);
  progress.advance(5);
  EXPECT_EQ(recorder.text, "comparing: 0/2 2/2");
}

TEST(Progress, OfAPartIsNotReported) {
  Recorder recorder;
  {
    Progress whole(&recorder, "models");
    {
      Progress part(&recorder, "comparing");
      part.expect(5);
      part.hide();
    }
    whole.expect(1);
  }
  Progress next(&recorder, "writing");
  EXPECT_EQ(recorder.text, "models: 0/1 end;writing:");
}

TEST(Progress, NeedsNoListener) {
  Progress progress(nullptr, "comparing");
  progress.expect(1);
  progress.complete();
  progress.hide();
}

} // namespace
} // namespace kvopt
