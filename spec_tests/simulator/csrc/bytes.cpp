// The bytes of a storage that a tensor covers, and whether two tensors overlap.

#include "races.h"

#include <algorithm>

namespace sim::races {
namespace {

// Maximum number of common bytes to compare one by one. Strided tensors with more common bytes
// count as overlapping.
constexpr size_t kMaxBytesCompared = size_t{64} << 20;

using StridedLayout = ByteRange::StridedLayout;

// Returns the dimensions with more than one element and a nonzero stride, in descending order of
// strides.
StridedLayout layout_of(const at::Tensor& tensor) {
  StridedLayout layout{tensor.element_size(), {}, {}};
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) != 0) {
      dims.push_back(dim);
    }
  }
  std::sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) {
    return tensor.stride(a) > tensor.stride(b);
  });
  for (const auto dim : dims) {
    layout.sizes.push_back(tensor.size(dim));
    layout.strides.push_back(tensor.stride(dim) * layout.item_size);
  }
  return layout;
}

// Merges contiguous innermost dimensions into one larger item.
void merge_contiguous(StridedLayout& layout) {
  while (!layout.sizes.empty() && layout.strides.back() == layout.item_size) {
    layout.item_size *= layout.sizes.back();
    layout.sizes.pop_back();
    layout.strides.pop_back();
  }
}

template <typename F>
void for_each_item(const StridedLayout& layout, size_t at, size_t dim, F&& visit) {
  if (dim == layout.sizes.size()) {
    visit(at, at + layout.item_size);
    return;
  }
  for (size_t i = 0; i < layout.sizes[dim]; ++i) {
    for_each_item(layout, at + i * layout.strides[dim], dim + 1, visit);
  }
}

template <typename F>
void for_each_range(const ByteRange& bytes, F&& visit) {
  if (bytes.layout) {
    for_each_item(*bytes.layout, bytes.begin, 0, visit);
  } else {
    visit(bytes.begin, bytes.end);
  }
}

}  // namespace

ByteRange bytes_of(const at::Tensor& tensor) {
  if (tensor.is_nested()) {
    return {0, tensor.storage().nbytes(), nullptr};  // the components are stored one after another
  }
  if (tensor.numel() == 0) {
    return {};
  }
  auto layout = layout_of(tensor);
  merge_contiguous(layout);
  ByteRange bytes;
  bytes.begin = tensor.storage_offset() * tensor.element_size();
  bytes.end = bytes.begin + layout.item_size;
  for (size_t dim = 0; dim < layout.sizes.size(); ++dim) {
    bytes.end += (layout.sizes[dim] - 1) * layout.strides[dim];
  }
  if (!layout.sizes.empty()) {
    bytes.layout = std::make_shared<const StridedLayout>(std::move(layout));
  }
  return bytes;
}

bool overlap(const ByteRange& a, const ByteRange& b) {
  const auto begin = std::max(a.begin, b.begin);
  const auto end = std::min(a.end, b.end);
  if (begin >= end) {
    return false;
  }
  if ((!a.layout && !b.layout) || end - begin > kMaxBytesCompared) {
    return true;
  }
  std::vector<bool> covered(end - begin);
  for_each_range(a, [&](size_t from, size_t to) {
    for (size_t at = std::max(from, begin); at < std::min(to, end); ++at) {
      covered[at - begin] = true;
    }
  });
  bool overlaps = false;
  for_each_range(b, [&](size_t from, size_t to) {
    for (size_t at = std::max(from, begin); !overlaps && at < std::min(to, end); ++at) {
      overlaps = covered[at - begin];
    }
  });
  return overlaps;
}

bool is_equal(const ByteRange& a, const ByteRange& b) {
  const bool same_layout = a.layout && b.layout ? *a.layout == *b.layout : a.layout == b.layout;
  return a.begin == b.begin && a.end == b.end && same_layout;
}

}  // namespace sim::races
