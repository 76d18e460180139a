// Metadata of models.
#include "ir/model.h"

#include "ir/op.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

TEST(ModelTest, MetadataIsSetReplacedAndRemoved) {
  OpRegistry registry;
  Model model(registry);
  EXPECT_EQ(model.findMetadata("a"), nullptr);
  model.setMetadata("a", "1");
  model.setMetadata("b", "2");
  model.setMetadata("a", "3");
  EXPECT_EQ(model.metadata, (Metadata{{"a", "3"}, {"b", "2"}}));
  model.removeMetadata("a");
  EXPECT_EQ(model.metadata, (Metadata{{"b", "2"}}));
}

TEST(ModelTest, RemovingWhatIsNotThereIsNoEdit) {
  OpRegistry registry;
  Model model(registry);
  model.removeMetadata("a");
  EXPECT_FALSE(model.isEdited());
  model.setMetadata("a", "1");
  model.removeMetadata("a");
  EXPECT_TRUE(model.isEdited());
}

} // namespace
} // namespace kvopt
