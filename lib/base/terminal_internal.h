#pragma once

#include <string>
#include <string_view>

namespace keel::detail {

/// stderr, shared by messages and the progress bar: one line at a time, the bar (if one stands) moved out of the way.
/// All functions may be called from any thread; none throws or reports that stderr is gone.
void write_stderr_line(std::string_view line);
/// Draws `bar` over the last one on the current line, without a newline; an empty one erases it.
void draw_stderr_bar(std::string_view bar);

/// True if stderr is a terminal that understands escapes.
bool stderr_is_terminal();
/// True if it is and NO_COLOR is not set.
bool stderr_has_color();
/// Columns of the terminal behind stderr, 80 if unknown.
int stderr_columns();
/// Columns to wrap a text on stdout to: of the terminal behind it, from 60 to 120; `otherwise` without one.
int stdout_columns(int otherwise);

}  // namespace keel::detail
