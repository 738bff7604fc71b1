#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizer/split_pattern.h"
#include "keel/tokenizer/tokenizer_spec.h"

namespace keel {

/// Takes the words of a text as they come.
class WordSink {
 public:
  virtual ~WordSink();
  virtual void word(std::string_view word) = 0;
};

/// Cuts a normalised text into words that are merged each for itself. Immutable.
class PreTokenizer {
 public:
  /// Error(usage) naming `name` for patterns that cannot be matched.
  PreTokenizer(const std::vector<PreTokenizerStep>& steps, const std::string& name);
  ~PreTokenizer();

  /// Memory for one thread.
  class Scratch {
   public:
    explicit Scratch(const PreTokenizer& pre_tokenizer);
    ~Scratch();

   private:
    friend class PreTokenizer;
    struct Step;
    std::vector<Step> steps_;
  };

  /// Gives the words of valid UTF-8 to `sink`, none of them empty. `first`: the text stands at the start of a document.
  void split(std::string_view text, bool first, Scratch& scratch, WordSink& sink) const {
    run(0, text, first, scratch, sink);
  }

 private:
  struct Step;
  void run(size_t index, std::string_view text, bool first, Scratch& scratch, WordSink& sink) const;
  void run_pattern(size_t index, std::string_view text, bool first, Scratch& scratch, WordSink& sink) const;
  void run_merging(size_t index, std::string_view text, bool first, Scratch& scratch, WordSink& sink) const;
  template <class Give>
  void for_each_match(size_t index, std::string_view text, Scratch& scratch, const Give& give) const;
  void run_metaspace(size_t index, std::string_view text, bool first, Scratch& scratch, WordSink& sink) const;

  std::vector<Step> steps_;
};

}  // namespace keel
