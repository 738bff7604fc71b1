#pragma once

/// Marks what users of libkeel and libkeel_tokenizer may call; everything else has hidden visibility.
#define KEEL_API __attribute__((visibility("default")))
