#pragma once

#include <functional>
#include <memory>

#include "keel/base/export.h"
#include "keel/base/options.h"
#include "keel/base/progress.h"

namespace keel {

/// What a tool's body returns or throws becomes the exit code.
using ToolBody = std::function<int(const Options&)>;

/// The one main of all tools: parses, answers --help, --version and --completions, sets up log and signals (SIGPIPE and
/// SIGXFSZ ignored; SIGINT, SIGTERM, SIGUSR1, SIGHUP noted, see signals.h), runs the body, catches everything, checks
/// stdout.
///   Error -> one line "keel-train: error: what (where): hint" on stderr and exit_code(kind)
///   std::bad_alloc -> 6;  std::filesystem::filesystem_error -> 4;  other exceptions -> 1;
///   Stopped (signals.h) -> 128 + signal;  closed stdout -> 141;  stdout that cannot be written (full disk) -> 4.
KEEL_API int run_tool(int argc, char** argv, const Tool& tool, const ToolBody& body);

/// The progress that --progress and --quiet ask for.
KEEL_API std::unique_ptr<Progress> make_progress(const Options& options);

}  // namespace keel
