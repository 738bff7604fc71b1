#pragma once

#include <string>
#include <vector>

#include "keel/base/export.h"
#include "keel/base/json.h"

namespace keel {

/// What a task does to each row before its templates see it, where templates cannot say it ("process_docs").
///   hellaswag   adds query, choices and gold: brackets of WikiHow's mark-up removed, the second half of the context
///               capitalised (spec of the harness's hellaswag/utils.py)
using RowProcessor = Json (*)(const Json& row);

/// nullptr if there is none of this name.
KEEL_API RowProcessor find_row_processor(const std::string& name);
KEEL_API std::vector<std::string> row_processor_names();

}  // namespace keel
