#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "keel/base/atomic_file.h"
#include "keel/base/export.h"

/// What encode may replace, and how.
namespace keel {

inline constexpr const char* kTokenizerName = "tokenizer.model";
inline constexpr const char* kReportName = "report.json";

/// Entries of a data set's folder that are not its own: neither shards or tokenizer of its manifest, nor manifest,
/// report and tokenizer under the names that encode gives them. Sorted; none of a folder that is empty or not there.
/// Error(io), Error(format) for its manifest.
KEEL_API std::vector<std::string> foreign_entries(const std::filesystem::path& folder);

/// Error(usage) if something is at `out` and `force` is not set, or if it is neither a data set of keel-tokenize nor an
/// empty folder: what was named by mistake is never replaced.
KEEL_API void require_replaceable(const std::filesystem::path& out, bool force);

/// Puts a complete data set under its name. An old one there (`force`) loses its own files, and nothing else: in one
/// step where it has no other entries; otherwise file by file, the new manifest before the new shards, so that what a
/// crash leaves is refused by every reader and replaced by the next --force. Error(usage) as require_replaceable,
/// Error(io).
KEEL_API void publish_dataset(AtomicDirectory& folder, bool force);

}  // namespace keel
