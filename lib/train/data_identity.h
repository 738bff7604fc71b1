#pragma once

#include "keel/base/export.h"
#include "keel/base/json.h"
#include "keel/train/run_setup.h"

namespace keel {

/// What identifies the data of a run, as run.json and trainer.json record it: for each shard, in order,
///   {"split": "train"|"val", "path", "bytes", "tokens", "hashed": "whole"|"sample", "xxh3", "index_xxh3", "mask_xxh3"}
/// with XXH3 hashes of the .bin, the .idx and, where it is used, the .mask file as they are now, whatever a manifest
/// says. Cost: files of 1 GiB or less in all are read whole; of more data each file counts with its size and 64 blocks
/// of 64 KiB spread evenly over it (first and last included), 4 MiB a file, so that a change of a few bytes in a large
/// file can go unnoticed but another file of the same size cannot. Throws Error(io), and Stopped on a signal.
KEEL_API Json data_identity(const RunSetup& setup);

/// Throws Error(format) that names the file unless the data is what it was: the same number of shards in each split,
/// and for each the same tokens, bytes and, where both are recorded in the same way, hashes. Paths may differ.
KEEL_API void require_same_data(const Json& before, const Json& now);

}  // namespace keel
