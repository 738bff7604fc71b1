# Libraries from the distribution; what has no CMake files of its own is found by pkg-config.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(dnnl REQUIRED)            # matrix products: the fastest fp32 GEMM packaged in Debian, kept up by Intel
find_package(nlohmann_json REQUIRED)   # JSON: complete, strict, the usual choice
find_package(fmt REQUIRED)             # formatting: what became std::format
find_package(spdlog REQUIRED)          # logging: built on fmt
find_package(CLI11 REQUIRED)           # command line: header-only, declares options once
find_package(ZLIB REQUIRED)            # .gz input
find_package(PkgConfig REQUIRED)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)                     # .zst input
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)                 # XXH3: integrity of shards and checkpoints
pkg_check_modules(sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)      # .model tokenizers: the reference implementation
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)                 # split patterns of tokenizer.json: compiled, with limits
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)             # Unicode normal forms and categories: small, no data files
find_package(simdjson REQUIRED)        # jsonl input at gigabytes per second
find_package(OpenSSL REQUIRED COMPONENTS Crypto)  # SHA-256 of inputs
if(KEEL_TESTS)
  find_package(GTest REQUIRED)
endif()
