#pragma once

#include <vector>

namespace keel::detail {

/// A definition that is part of the library.
struct TaskFile {
  const char* name;  ///< "arc_easy.json"
  const char* text;
};

const std::vector<TaskFile>& task_files();

}  // namespace keel::detail
