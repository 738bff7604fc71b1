// Prints how many tokens a text has: count_tokens TOKENIZER TEXT. Exit code by error kind, 4 for a missing file.
#include <cstdint>
#include <iostream>
#include <vector>

#include "keel/base/error.h"
#include "keel/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  try {
    std::vector<int32_t> ids;
    keel::load_tokenizer(argv[1])->make_encoder()->encode(argv[2], ids);
    std::cout << ids.size() << '\n';
  } catch (const keel::Error& error) {
    std::cerr << error.what() << '\n';
    return keel::exit_code(error.kind());
  }
  return 0;
}
