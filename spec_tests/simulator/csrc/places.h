// Where in the user's program something happens.

#pragma once

#include <string>

namespace sim {

// The innermost Python frame outside torch, or the node whose backward runs where there is none.
struct Place {
  void* code = nullptr;  // PyCodeObject, kept for good
  int instruction = 0;
  std::string node;
};

// Takes the interpreter lock: call it with no lock held that others take while they have that.
Place this_place();
const std::string& this_thread();  // never freed
// "file:line in function", or which backward.
std::string text_of(const Place& place);

}  // namespace sim
