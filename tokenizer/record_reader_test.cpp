#include "keel/tokenizer/record_reader.h"

#include <random>

#include "keel/tokenizer/test_support.h"

namespace keel {
namespace {

struct Seen {
  std::string bytes;
  int64_t line, offset;
  bool operator==(const Seen&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Seen& seen) {
  return out << seen.line << "@" << seen.offset << ":" << seen.bytes.substr(0, 60);
}

struct Reading {
  std::vector<Seen> records;
  std::vector<RecordBlock> ends;  // file_end and damaged
  std::vector<RecordBlock> oversized;
};

Reading read_all(const std::vector<InputFile>& files, const RecordReaderOptions& options) {
  RecordReader reader(files, options);
  Reading reading;
  while (std::optional<RecordBlock> block = reader.next(nullptr)) {
    if (block->kind == RecordBlock::Kind::oversized) {
      reading.oversized.push_back(*block);
    } else if (block->kind != RecordBlock::Kind::records) {
      reading.ends.push_back(*block);
    } else {
      RecordCursor cursor(reader.rule(block->format), *block);
      while (const std::optional<Record> record = cursor.next()) {
        reading.records.push_back({std::string(record->bytes), record->line, record->byte_offset});
      }
    }
  }
  return reading;
}

class RecordReaderTest : public ::testing::Test {
 protected:
  InputFile file(const std::string& name, std::string_view bytes) {
    testing::put_file(folder_.file(name), bytes);
    return {folder_.file(name), static_cast<int64_t>(bytes.size())};
  }
  Reading read(std::string_view bytes, const RecordReaderOptions& options, const std::string& name = "a.txt") {
    return read_all({file(name, bytes)}, options);
  }
  static RecordReaderOptions text(RecordRule rule) {
    RecordReaderOptions options;
    options.format = DocumentFormat::txt;
    options.text_rule = std::move(rule);
    return options;
  }
  testing::Scratch folder_;
};

const RecordRule kLines{RecordRule::Kind::lines};
const RecordRule kWhole{RecordRule::Kind::whole};
RecordRule mark(const std::string& text) {
  return {RecordRule::Kind::mark, text};
}

TEST_F(RecordReaderTest, Lines) {
  EXPECT_EQ(read("a\n\nbc\r\nd", text(kLines)).records,
            (std::vector<Seen>{{"a", 1, 0}, {"", 2, 2}, {"bc", 3, 3}, {"d", 4, 7}}));
  EXPECT_EQ(read("a\n", text(kLines)).records, (std::vector<Seen>{{"a", 1, 0}}));
  EXPECT_EQ(read("a\u2028b\u0085c\rd\n", text(kLines)).records.size(), 1u);
  EXPECT_TRUE(read("", text(kLines)).records.empty());
}

TEST_F(RecordReaderTest, WholeFiles) {
  EXPECT_EQ(read("a\nb\n", text(kWhole)).records, (std::vector<Seen>{{"a\nb\n", 1, 0}}));
  const Reading empty = read("", text(kWhole));
  EXPECT_TRUE(empty.records.empty());
  EXPECT_TRUE(empty.ends.at(0).is_empty);
}

TEST_F(RecordReaderTest, Marks) {
  const RecordRule end = mark("<|end|>");
  EXPECT_EQ(read("one\n<|end|>\ntwo\nlines\r\n<|end|>\r\nthree", text(end)).records,
            (std::vector<Seen>{{"one", 1, 0}, {"two\nlines", 3, 12}, {"three", 6, 32}}));
  EXPECT_EQ(read("a<|end|>b<|end|><|end|>c", text(end)).records,
            (std::vector<Seen>{{"a", 1, 0}, {"b", 1, 8}, {"", 1, 16}, {"c", 1, 23}}));
  EXPECT_EQ(read("a<|end|>\n", text(end)).records, (std::vector<Seen>{{"a", 1, 0}}));
  EXPECT_EQ(read("\na", text(end)).records, (std::vector<Seen>{{"\na", 1, 0}}));
  EXPECT_EQ(read("xaaay", text(mark("aa"))).records, (std::vector<Seen>{{"x", 1, 0}, {"ay", 1, 3}}));
}

TEST_F(RecordReaderTest, SkipsAByteOrderMarkAtTheStartOnly) {
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "a\n\xEF\xBB\xBF"
                 "b\n",
                 text(kLines))
                .records,
            (std::vector<Seen>{{"a", 1, 3}, {"\uFEFFb", 2, 5}}));
  EXPECT_EQ(read_all({file("a.gz", testing::gzip("\xEF\xBB\xBF"
                                                 "a\n"))},
                     text(kLines))
                .records,
            (std::vector<Seen>{{"a", 1, 3}}));
  EXPECT_TRUE(read("\xEF\xBB\xBF", text(kWhole)).ends.at(0).is_empty);
}

// Records of all sizes around the block size come out whole, with their lines and offsets.
TEST_F(RecordReaderTest, BlocksNeverCutARecord) {
  std::mt19937_64 random(4);
  for (const RecordRule& rule : {kLines, mark("<end>"), mark("\n\n")}) {
    const std::string stop = rule.kind == RecordRule::Kind::lines ? "\n" : rule.mark;
    std::string bytes;
    std::vector<Seen> wanted;
    for (int i = 0; i < 40; ++i) {
      const size_t size = random() % 5 == 0 ? (256 << 10) - 3 + random() % 6 : random() % 30000;
      const std::string record = "r" + std::string(size, 'x') + "<en";
      const int64_t lines = 1 + std::count(bytes.begin(), bytes.end(), '\n');
      wanted.push_back({record, lines, static_cast<int64_t>(bytes.size())});
      bytes += record + stop;
    }
    const Reading reading = read(bytes, text(rule));
    ASSERT_EQ(reading.records.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(reading.records[i], wanted[i]) << i;
  }
}

TEST_F(RecordReaderTest, RecordsBeyondTheLimitArePassedOver) {
  RecordReaderOptions options = text(kLines);
  options.max_record_bytes = 1 << 20;
  const std::string large(3 << 20, 'y');
  Reading reading = read("a\nb\n" + large + "\nc\n", options);
  EXPECT_EQ(reading.records, (std::vector<Seen>{{"a", 1, 0}, {"b", 2, 2}, {"c", 4, 4 + (3 << 20) + 1}}));
  ASSERT_EQ(reading.oversized.size(), 1u);
  EXPECT_EQ(reading.oversized[0].line, 3);
  EXPECT_EQ(reading.oversized[0].byte_offset, 4);
  reading = read("a\n" + large, options);  // to the end of the file
  EXPECT_EQ(reading.records.size(), 1u);
  EXPECT_EQ(reading.oversized.size(), 1u);
  options.text_rule = mark("<end>");
  reading = read("a<end>" + large + "\n<end>\nc", options);
  EXPECT_EQ(reading.records, (std::vector<Seen>{{"a", 1, 0}, {"c", 3, 6 + (3 << 20) + 7}}));
  // A mark that lies across two reads still ends its record.
  const std::string first((256 << 10) - 2, 'x');
  reading = read(first + "<end>" + large + "<end>c", options);
  ASSERT_EQ(reading.records.size(), 2u);
  EXPECT_EQ(reading.records[0].bytes, first);
  options.text_rule = kWhole;
  EXPECT_EQ(read(large, options).oversized.size(), 1u);
}

TEST_F(RecordReaderTest, DamagedFilesEndWithTheNewsAndReadingGoesOn) {
  const std::string good = testing::gzip("{\"text\":\"a\"}\n");
  RecordReaderOptions options;
  const Reading reading = read_all({file("cut.gz", good.substr(0, good.size() - 3)), file("wide.jsonl", "\xFF\xFE{\0"),
                                    file("list.json", "[\n {\"text\": \"a\"}\n]"), file("good.gz", good)},
                                   options);
  ASSERT_EQ(reading.ends.size(), 4u);
  EXPECT_NE(reading.ends[0].damage.find("truncated gzip"), std::string::npos);
  EXPECT_NE(reading.ends[1].damage.find("UTF-16"), std::string::npos);
  EXPECT_NE(reading.ends[2].damage.find("JSON array"), std::string::npos);
  EXPECT_EQ(reading.ends[3].kind, RecordBlock::Kind::file_end);
  EXPECT_EQ(reading.ends[3].bytes_taken, static_cast<int64_t>(good.size()));
  EXPECT_EQ(reading.records.back().bytes, "{\"text\":\"a\"}");
}

// All shares together give every record once and in order, whatever the files are.
TEST_F(RecordReaderTest, SharesAreAPartition) {
  std::mt19937_64 random(8);
  std::string lines, marks;
  for (int i = 0; i < 9000; ++i) lines += "line " + std::to_string(i) + std::string(random() % 90, 'x') + "\n";
  for (int i = 0; i < 3000; ++i) marks += "text " + std::to_string(i) + std::string(random() % 90, '\n') + "<end>\n";
  const std::vector<InputFile> files = {file("a.txt", lines),  file("b.txt", "one line\n"),
                                        file("empty.txt", ""), file("c.txt", testing::gzip(lines)),
                                        file("d.txt", marks),  file("e.txt", testing::zstd(lines)),
                                        file("f.txt", "")};
  for (const RecordRule& rule : {kLines, mark("<end>"), kWhole}) {
    RecordReaderOptions options = text(rule);
    const Reading whole = read_all(files, options);
    for (int64_t parts : {2, 3, 7, 50}) {
      std::vector<Seen> together;
      size_t ends = 0;
      options.parts = parts;
      for (options.part = 0; options.part < parts; ++options.part) {
        const Reading share = read_all(files, options);
        together.insert(together.end(), share.records.begin(), share.records.end());
        for (const RecordBlock& end : share.ends) ends += end.is_empty;
      }
      ASSERT_EQ(together.size(), whole.records.size()) << parts;
      ASSERT_TRUE(together == whole.records) << parts;
      ASSERT_EQ(ends, 2u) << parts;
    }
  }
  RecordReaderOptions options;
  options.parts = 2;
  testing::expect_error(ErrorKind::usage, "--part", [&] { RecordReader({{"-", 0}}, options); });
}

TEST(DetectFormat, ByContentFirst) {
  const auto detect = [](const char* name, std::string_view head, bool whole = true) {
    return detect_format(name, head, whole);
  };
  EXPECT_EQ(detect("a.jsonl", "{\"text\":\"a\"}\n"), DocumentFormat::jsonl);
  EXPECT_EQ(detect("a.txt", "{\"text\":\"a\"}\n"), DocumentFormat::jsonl);  // the content says so
  EXPECT_EQ(detect("a.txt", "{ not json\n"), DocumentFormat::txt);
  EXPECT_EQ(detect("a.txt", "{\"text\":\"" + std::string(1000, 'x'), false), DocumentFormat::jsonl);
  EXPECT_EQ(detect("a.txt", "{\"text\":\"" + std::string(1000, 'x'), true), DocumentFormat::txt);
  EXPECT_EQ(detect("a.data", "{ not json\n"), DocumentFormat::jsonl);  // and fails with its line, not silently as text
  EXPECT_EQ(detect("a.jsonl.gz", "torn line\n"), DocumentFormat::jsonl);
  EXPECT_EQ(detect("a.json.zst", "torn line\n"), DocumentFormat::jsonl);
  EXPECT_EQ(detect("a", "some words"), DocumentFormat::txt);
  EXPECT_EQ(detect("-", "some words"), DocumentFormat::jsonl);
  EXPECT_EQ(detect("a.txt", "[Illustration]\nChapter"), DocumentFormat::txt);
  testing::expect_error(ErrorKind::format, "JSON array", [&] { detect("a.json", "[]"); });
  testing::expect_error(ErrorKind::format, "JSON array", [&] { detect("a.txt", "[\n  {\"text\""); });
}

TEST(InputFiles, FilesFoldersAndPatterns) {
  testing::Scratch folder;
  for (const char* name : {"b.jsonl", "a.txt", "sub/c.json.gz", "sub/deeper/d.jsonl.zst", "README.md", ".hidden.txt",
                           "_logs/x.txt", "none/x.md", "sub/e.parquet"}) {
    testing::put_file(folder.file(name), "x");
  }
  const auto names = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> found;
    for (const InputFile& file : find_input_files(arguments).files) {
      found.push_back(file.path == "-" ? "-" : std::filesystem::relative(file.path, folder.path()).string());
    }
    return found;
  };
  EXPECT_EQ(names({folder.path().string()}),
            (std::vector<std::string>{"a.txt", "b.jsonl", "sub/c.json.gz", "sub/deeper/d.jsonl.zst", "sub/e.parquet"}));
  EXPECT_EQ(find_input_files({folder.path().string()}).left_out.size(), 2u);
  EXPECT_EQ(names({folder.file("*.??*"), "-", folder.file("README.md")}),
            (std::vector<std::string>{"README.md", "a.txt", "b.jsonl", "-", "README.md"}));
  EXPECT_EQ(find_input_files({folder.file("a.txt")}).files[0].bytes, 1);
  testing::expect_error(ErrorKind::io, "nothing.txt", [&] { names({folder.file("nothing.txt")}); });
  testing::expect_error(ErrorKind::io, "no file matches", [&] { names({folder.file("*.nothing")}); });
  testing::expect_error(ErrorKind::io, "no document files", [&] { names({folder.file("none")}); });
  testing::expect_error(ErrorKind::usage, "only once", [&] { names({"-", "-"}); });
}

}  // namespace
}  // namespace keel
