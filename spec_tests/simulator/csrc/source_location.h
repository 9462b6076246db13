// The location that a report names: the line of the user's program, or the autograd node, that runs
// an operator.

#pragma once

#include <string>

namespace sim {

// The innermost Python frame outside torch. Without such a frame, the autograd node whose backward
// runs.
struct SourceLocation {
  void* code = nullptr;  // PyCodeObject, never released
  int instruction = 0;
  std::string node;
};

// Acquires the GIL. Call it without any lock that another thread acquires while it holds the GIL.
SourceLocation current_location();
const std::string& current_thread_name();  // never freed
// "file:line in function", or "backward of NODE".
std::string to_string(const SourceLocation& location);

}  // namespace sim
