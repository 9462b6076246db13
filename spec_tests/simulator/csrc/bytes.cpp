// Which bytes of a storage a tensor covers, and whether two tensors have one in common.

#include "races.h"

#include <algorithm>

namespace sim::races {
namespace {

// Past this many bytes in question, tensors with gaps count as overlapping.
constexpr size_t kMostBytesCompared = size_t{64} << 20;

using Gaps = Bytes::Gaps;

// Dimensions that matter, the widest stride first.
Gaps layout_of(const at::Tensor& tensor) {
  Gaps gaps{tensor.element_size(), {}, {}};
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
    gaps.sizes.push_back(tensor.size(dim));
    gaps.strides.push_back(tensor.stride(dim) * gaps.item);
  }
  return gaps;
}

// Turns innermost dimensions without gaps into one wider item.
void join_dense(Gaps& gaps) {
  while (!gaps.sizes.empty() && gaps.strides.back() == gaps.item) {
    gaps.item *= gaps.sizes.back();
    gaps.sizes.pop_back();
    gaps.strides.pop_back();
  }
}

template <typename F>
void each_item(const Gaps& gaps, size_t at, size_t dim, F&& visit) {
  if (dim == gaps.sizes.size()) {
    visit(at, at + gaps.item);
    return;
  }
  for (size_t i = 0; i < gaps.sizes[dim]; ++i) {
    each_item(gaps, at + i * gaps.strides[dim], dim + 1, visit);
  }
}

template <typename F>
void each_run(const Bytes& bytes, F&& visit) {
  if (bytes.gaps) {
    each_item(*bytes.gaps, bytes.begin, 0, visit);
  } else {
    visit(bytes.begin, bytes.end);
  }
}

}  // namespace

Bytes bytes_of(const at::Tensor& tensor) {
  if (tensor.is_nested()) {
    return {0, tensor.storage().nbytes(), nullptr};  // its rows, one behind the other
  }
  if (tensor.numel() == 0) {
    return {};
  }
  auto gaps = layout_of(tensor);
  join_dense(gaps);
  Bytes bytes;
  bytes.begin = tensor.storage_offset() * tensor.element_size();
  bytes.end = bytes.begin + gaps.item;
  for (size_t dim = 0; dim < gaps.sizes.size(); ++dim) {
    bytes.end += (gaps.sizes[dim] - 1) * gaps.strides[dim];
  }
  if (!gaps.sizes.empty()) {
    bytes.gaps = std::make_shared<const Gaps>(std::move(gaps));
  }
  return bytes;
}

bool overlap(const Bytes& one, const Bytes& other) {
  const auto begin = std::max(one.begin, other.begin);
  const auto end = std::min(one.end, other.end);
  if (begin >= end) {
    return false;
  }
  if ((!one.gaps && !other.gaps) || end - begin > kMostBytesCompared) {
    return true;
  }
  std::vector<bool> covered(end - begin);
  each_run(one, [&](size_t from, size_t to) {
    for (size_t at = std::max(from, begin); at < std::min(to, end); ++at) {
      covered[at - begin] = true;
    }
  });
  bool found = false;
  each_run(other, [&](size_t from, size_t to) {
    for (size_t at = std::max(from, begin); !found && at < std::min(to, end); ++at) {
      found = covered[at - begin];
    }
  });
  return found;
}

bool same(const Bytes& one, const Bytes& other) {
  const bool gaps = one.gaps && other.gaps ? *one.gaps == *other.gaps : one.gaps == other.gaps;
  return one.begin == other.begin && one.end == other.end && gaps;
}

}  // namespace sim::races
