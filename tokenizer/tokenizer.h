#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/export.h"

namespace keel {

/// What to do with the text of control tokens ("</s>") inside a document.
enum class SpecialText {
  plain,  ///< it is text like any other: data can never produce a control id
  parse,  ///< it becomes the control id; the text between is encoded piece by piece
};

/// A text that would take too much memory to encode: say so, and drop or split the document.
class KEEL_API TextTooLong : public Error {
 public:
  explicit TextTooLong(const std::string& message) : Error(ErrorKind::format, message) {}
};

/// Turns text into ids; one thread at a time. Several encoders of one tokenizer may work at once.
class KEEL_API TokenEncoder {
 public:
  virtual ~TokenEncoder();
  /// Appends the ids of `text` (UTF-8; NUL is a character like any other), without BOS or EOS.
  /// TextTooLong; Stopped after a signal. After an exception `ids` may hold a part.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special = SpecialText::plain) = 0;

  /// How many bytes of all texts so far (as they are after normalisation) no id stands for, because the vocabulary
  /// cannot spell them: their characters became the unknown piece, or nothing. Tell the user if it is not 0.
  int64_t lost_bytes() const noexcept { return lost_bytes_; }

 protected:
  void note_lost(int64_t bytes) noexcept { lost_bytes_ += bytes; }

 private:
  int64_t lost_bytes_ = 0;
};

/// Turns ids back into text as they come.
class KEEL_API TokenDecoder {
 public:
  virtual ~TokenDecoder();
  /// Appends what is certain after this id: always whole characters, so bytes of one that is not complete wait.
  /// Error(format) for an id outside the vocabulary.
  virtual void append(int32_t id, std::string& text) = 0;
  /// The end: bytes still waiting become U+FFFD. The decoder starts again after it.
  virtual void finish(std::string& text) = 0;
};

/// A vocabulary with its rules. Immutable, so shared by threads.
class KEEL_API Tokenizer {
 public:
  virtual ~Tokenizer();

  /// "sentencepiece-bpe", "sentencepiece-unigram", ..., "byte-level-bpe", "bpe"
  virtual std::string type() const = 0;
  /// Number of ids, added tokens included; ids are 0 .. vocab_size() - 1.
  virtual int64_t vocab_size() const = 0;
  int32_t largest_id() const { return static_cast<int32_t>(vocab_size() - 1); }
  virtual std::optional<int32_t> bos_id() const = 0;
  /// The end of a document (EOD, EOS).
  virtual std::optional<int32_t> eos_id() const = 0;
  virtual std::optional<int32_t> unk_id() const = 0;
  virtual std::optional<int32_t> pad_id() const = 0;
  /// Whether BOS and EOS are put around a text where nothing else is asked for: what the tokenizer's files say (beside
  /// a sentencepiece model tokenizer_config.json), false where they say nothing. Encoders never add them.
  virtual bool adds_bos() const { return false; }
  virtual bool adds_eos() const { return false; }
  /// The vocabulary's own spelling of an id ("▁the", "<0x0A>"). Error(format) outside the vocabulary.
  virtual const std::string& piece(int32_t id) const = 0;

  virtual std::unique_ptr<TokenEncoder> make_encoder() const = 0;
  virtual std::unique_ptr<TokenDecoder> make_decoder() const = 0;

  /// `lost_bytes`, if given, gets TokenEncoder::lost_bytes() added.
  std::vector<int32_t> encode(std::string_view text, SpecialText special = SpecialText::plain,
                              int64_t* lost_bytes = nullptr) const;
  std::string decode(std::span<const int32_t> ids) const;

  /// The file it was loaded from, and that file's SHA-256 (64 hexadecimal digits).
  const std::filesystem::path& path() const noexcept { return path_; }
  const std::string& sha256() const noexcept { return sha256_; }
  /// All files it was loaded from, path() first. Copies of them under the same names in one folder are the same
  /// tokenizer.
  const std::vector<std::filesystem::path>& files() const noexcept { return files_; }

 private:
  friend KEEL_API std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path);
  std::filesystem::path path_;
  std::string sha256_;
  std::vector<std::filesystem::path> files_;
};

/// Loads a tokenizer from its file, or from the folder it lies in (a model's, or the output of keel-tokenize): a
/// sentencepiece .model, a Hugging Face tokenizer.json with a BPE model, or a vocab.json with its merges.txt.
/// Error(io) if there is none, Error(format) if it is damaged, Error(usage) for a kind this version does not read.
KEEL_API std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path);

/// The tokenizer file that load_tokenizer(path) would read.
KEEL_API std::filesystem::path find_tokenizer_file(const std::filesystem::path& path);

/// The tokenizer of a model with `vocab_size` ids: load_tokenizer(path). Error(format) naming `model` if the path is
/// empty, and if the tokenizer has more ids than the model.
KEEL_API std::shared_ptr<const Tokenizer> load_model_tokenizer(const std::filesystem::path& path, int64_t vocab_size,
                                                               const std::string& model);

/// Puts a tokenizer's files into a folder, where load_tokenizer(folder) finds the same one. Returns the name of the
/// main file there: "tokenizer.model", "tokenizer.json" or "vocab.json". Error(io).
KEEL_API std::string copy_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& folder);

/// The names of the files that belong to a main file of this name, itself first, whether they are there or not.
KEEL_API std::vector<std::string> tokenizer_file_names(const std::string& main);

}  // namespace keel
