#include "keel/tokenizer/dataset_folder.h"

#include "keel/tokenizer/encode_fixture.h"
#include "keel/tokenizer/token_dataset.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

class DatasetFolderTest : public testing::EncodeTest {
 protected:
  // A complete data set of one document; its folder.
  std::string dataset(const std::string& text) {
    const EncodeResult result = encode({"{\"text\":\"" + text + "\"}\n"});
    testing::put_file(out_ + "/" + kTokenizerName, testing::get_file(testing::model_m_path()));
    testing::put_file(out_ + "/" + kManifestName, manifest_text(result, kTokenizerName));
    return out_;
  }
  static void replace(const std::string& old_set, const std::string& new_set) {
    AtomicDirectory folder(old_set);
    fs::copy(new_set, folder.temporary(), fs::copy_options::recursive);
    publish_dataset(folder, true);
  }
};

TEST_F(DatasetFolderTest, ForeignEntriesAreThoseThatNobodyWrote) {
  const std::string folder = dataset("the cat");
  EXPECT_TRUE(foreign_entries(folder).empty());
  EXPECT_TRUE(foreign_entries(folder_.file("nothing")).empty());
  testing::put_file(folder + "/train-00001.bin", "x");  // not in the manifest
  testing::put_file(folder + "/notes/a.txt", "x");
  fs::create_directory(folder + "/report.json");
  EXPECT_EQ(foreign_entries(folder), (std::vector<std::string>{"notes", "report.json", "train-00001.bin"}));
}

TEST_F(DatasetFolderTest, AHalfReplacedSetIsRefusedAndCanBeReplaced) {
  const std::string old_set = dataset("the cat"), new_set = dataset("at");
  testing::put_file(old_set + "/notes.txt", "mine");
  fs::copy_file(new_set + "/manifest.json", old_set + "/manifest.json", fs::copy_options::overwrite_existing);
  testing::expect_error(ErrorKind::format, "the manifest says", [&] { TokenDataset{old_set}; });
  replace(old_set, new_set);
  EXPECT_EQ(TokenDataset(old_set).document(0), (std::vector<int64_t>{273, 2}));
  EXPECT_EQ(testing::get_file(old_set + "/notes.txt"), "mine");
}

TEST_F(DatasetFolderTest, OnlyDataSetsAreReplaced) {
  const std::string set = dataset("the cat"), other = folder_.file("other");
  testing::put_file(other + "/thesis.tex", "x");
  testing::expect_error(ErrorKind::usage, "not a data set", [&] { replace(other, set); });
  testing::expect_error(ErrorKind::usage, "output exists", [&] { require_replaceable(set, false); });
  EXPECT_EQ(testing::get_file(other + "/thesis.tex"), "x");
  fs::remove(other + "/thesis.tex");
  replace(other, set);
  EXPECT_EQ(TokenDataset(other).documents(), 1);
}

}  // namespace
}  // namespace keel
