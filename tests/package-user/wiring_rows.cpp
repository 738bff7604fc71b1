// Prints the skip scale of each sublayer: wiring_rows SCHEME BLOCKS. Exit code 2 for a scheme that does not exist.
#include <cstdlib>
#include <iostream>

#include "keel/base/error.h"
#include "keel/model/residual_wiring.h"

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  const int64_t blocks = std::atoi(argv[2]);
  try {
    for (int64_t l = 0; l < 2 * blocks; ++l) std::cout << keel::residual_wiring(argv[1], l, blocks).a << '\n';
  } catch (const keel::Error& error) {
    std::cerr << error.what() << '\n';
    return keel::exit_code(error.kind());
  }
  return 0;
}
