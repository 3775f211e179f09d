// Traffic between the levels of memory, from a Structure. See structure.h.
#include <algorithm>

#include "search/sketches/structure.h"

namespace lathe::search {

namespace {

// Footprints by loop and buffer: `inside`: one iteration's; `whole`: all iterations'. Row 0 is the root.
struct Footprints {
  size_t buffers = 0;
  std::vector<double> inside, whole;
  std::vector<char> uses;  // the loop indexes the buffer
  double& at(std::vector<double>& v, int loop, size_t b) const {
    return v[static_cast<size_t>(loop + 1) * buffers + b];
  }
  char& used(int loop, size_t b) { return uses[static_cast<size_t>(loop + 1) * buffers + b]; }
};

// Bytes of an access when loops after `loop` run and the others stand still.
double footprint_bytes(const Structure& s, const Structure::Access& a, int loop, double line) {
  double bytes = s.buffers[static_cast<size_t>(a.buffer)].element;
  for (int d = a.rank - 1; d >= 0; --d) {
    const Structure::Dim& dim = a.dims[static_cast<size_t>(d)];
    double span = dim.base;
    for (int t = 0; t < dim.count; ++t) {
      const Structure::Term& term = dim.terms[static_cast<size_t>(t)];
      if (term.loop > loop) span += term.step * (s.loops[static_cast<size_t>(term.loop)].trips - 1);
    }
    bytes *= std::min(span, dim.extent);
    if (d == a.rank - 1 && !a.packed) bytes = std::max(bytes, line);
  }
  return bytes;
}

Footprints footprints(const Structure& s, double line) {
  Footprints f;
  f.buffers = s.buffers.size();
  const size_t rows = s.loops.size() + 1;
  f.inside.assign(rows * f.buffers, 0);
  f.whole.assign(rows * f.buffers, 0);
  f.uses.assign(rows * f.buffers, 0);
  for (const Structure::Access& a : s.accesses) {
    const size_t b = static_cast<size_t>(a.buffer);
    for (int d = 0; d < a.rank; ++d) {
      const Structure::Dim& dim = a.dims[static_cast<size_t>(d)];
      for (int t = 0; t < dim.count; ++t) f.used(dim.terms[static_cast<size_t>(t)].loop, b) = 1;
    }
    for (int loop = a.loop;; loop = s.loops[static_cast<size_t>(loop)].parent) {
      const double inside = footprint_bytes(s, a, loop, line);
      double& slot = f.at(f.inside, loop, b);
      slot = std::max(slot, inside);
      if (loop < 0) {
        f.at(f.whole, loop, b) = slot;
        break;
      }
      // Loops between the parent and this one that are siblings do not index what lies here.
      double& all = f.at(f.whole, loop, b);
      all = std::max(all, footprint_bytes(s, a, loop - 1, line));
    }
  }
  return f;
}

double sum(const std::vector<double>& v, int loop, size_t buffers) {
  double total = 0;
  for (size_t b = 0; b < buffers; ++b) total += v[static_cast<size_t>(loop + 1) * buffers + b];
  return total;
}

}  // namespace

std::vector<double> traffic(const Structure& s, double capacity, double line) {
  Footprints f = footprints(s, line);
  const size_t n = f.buffers;
  std::vector<double> bytes((s.loops.size() + 1) * n, 0);   // of one whole execution of the loop
  std::vector<char> resident((s.loops.size() + 1) * n, 0);  // the same piece all the while
  std::vector<int> touching((s.loops.size() + 1) * n, 0);   // children with traffic of the buffer
  // Children come after their parents: backwards, a loop's body is complete when it is reached.
  for (int loop = static_cast<int>(s.loops.size()) - 1; loop >= -1; --loop) {
    const size_t row = static_cast<size_t>(loop + 1) * n;
    const double trips = loop < 0 ? 1 : s.loops[static_cast<size_t>(loop)].trips;
    const bool whole_fits = loop >= 0 && sum(f.whole, loop, n) <= capacity;
    const bool body_fits = sum(f.inside, loop, n) <= capacity;
    for (size_t b = 0; b < n; ++b) {
      if (whole_fits) {
        bytes[row + b] = f.at(f.whole, loop, b);
        resident[row + b] = 1;
      } else if (body_fits) {
        const bool walks = loop >= 0 && f.used(loop, b) != 0;
        // Steps may share lines, or overlap.
        bytes[row + b] =
            walks ? std::min(f.at(f.inside, loop, b) * trips, std::max(f.at(f.whole, loop, b), f.at(f.inside, loop, b)))
                  : f.at(f.inside, loop, b);
        resident[row + b] = !walks;
      } else {
        if (touching[row + b] == 0) bytes[row + b] = f.at(f.inside, loop, b);  // statements of the body itself
        const bool stays = touching[row + b] == 1 && resident[row + b] != 0 && (loop < 0 || f.used(loop, b) == 0);
        if (!stays) bytes[row + b] *= trips;
        resident[row + b] = stays;
      }
    }
    if (loop < 0) break;
    const size_t up = static_cast<size_t>(s.loops[static_cast<size_t>(loop)].parent + 1) * n;
    for (size_t b = 0; b < n; ++b) {
      if (f.at(f.whole, loop, b) == 0) continue;
      bytes[up + b] += bytes[row + b];
      resident[up + b] = resident[row + b];
      ++touching[up + b];
    }
  }
  bytes.resize(n);
  const bool all_fits = line > 0 && sum(f.inside, -1, n) <= capacity;
  for (size_t b = 0; b < n; ++b) {
    const Structure::Buffer& buffer = s.buffers[b];
    if (all_fits) bytes[b] = 0;
    if (buffer.cold && line > 0) bytes[b] = std::max(bytes[b], buffer.bytes);
  }
  return bytes;
}

double working_set(const Structure& s, int loop) {
  Footprints f = footprints(s, 64);
  return sum(f.inside, loop, f.buffers);
}

}  // namespace lathe::search
