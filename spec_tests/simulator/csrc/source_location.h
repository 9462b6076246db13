// The location that a report names: the line of the user's program, or the autograd node, that runs
// an operator.

#pragma once

#include <string>

namespace sim {

// The innermost Python frame outside torch, or the autograd node whose backward runs if there is no
// such frame.
struct SourceLocation {
  void* code = nullptr;  // PyCodeObject, never released
  int instruction = 0;
  std::string node;
};

// Acquires the GIL. The caller must not hold a lock that another thread acquires while that thread
// holds the GIL.
SourceLocation current_location();
const std::string& current_thread_name();  // never freed
// "file:line in function", or "backward of NODE".
std::string to_string(const SourceLocation& location);

}  // namespace sim
