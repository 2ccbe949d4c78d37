#include "cuda/launch/plan.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace truenorm::cuda {

using spec::Rows;
using spec::Type;
using spec::Vec;

namespace {

constexpr std::size_t kCounterBytes = 16;

Type common(Type a, const Rows& b) { return !b.present || b.type == a ? a : Type::f32; }

// Whether all rows start at multiples of so many bytes.
bool starts_at(const Rows& t, std::int64_t m, std::uintptr_t bytes) {
  const auto at = [&](auto v) { return static_cast<std::uintptr_t>(v) % bytes == 0; };
  return !t.present || (at(reinterpret_cast<std::uintptr_t>(t.data)) &&
                        (t.inner <= 1 || m <= 1 || at(t.inner_stride)) && (t.inner >= m || at(t.outer_stride)));
}

bool aligned(const Rows& t, std::int64_t m) { return starts_at(t, m, 16); }
bool aligned(const Vec& v) { return !v.present || reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0; }

bool same_place(const Rows& a, const Rows& b) { return a.present && b.present && a.data == b.data; }

}  // namespace

Type matrices(const spec::ForwardCall& call) {
  if (!whole_chunks(call) && !(aligned(call.weight) && aligned(call.bias))) return Type::f32;
  Type type = call.x.type;
  for (const Rows* t : {&call.residual, &call.y, &call.s}) type = common(type, *t);
  return call.residual.present && call.s_type != type ? Type::f32 : type;
}

Type matrices_of_wide(const spec::ForwardCall& call) { return whole_chunks(call) ? matrices(call) : Type::f32; }

Type matrices(const spec::BackwardCall& call) {
  if (!whole_chunks(call)) return Type::f32;
  Type type = call.dy.present ? call.dy.type : call.ds.type;
  for (const Rows* t : {&call.ds, &call.dx, &call.dresidual}) type = common(type, *t);
  return call.dy.present ? common(type, call.s) : type;
}

bool whole_chunks(const spec::ForwardCall& call) {
  if (call.n % 8 != 0 || call.m > kMostRows || !aligned(call.weight) || !aligned(call.bias)) return false;
  for (const Rows* t : {&call.x, &call.residual, &call.y, &call.s}) {
    if (!aligned(*t, call.m)) return false;
  }
  return true;
}

bool whole_chunks(const spec::BackwardCall& call) {
  if (call.n % 8 != 0 || call.m > kMostRows || !aligned(call.weight)) return false;
  for (const Rows* t : {&call.dy, &call.ds, &call.s, &call.dx, &call.dresidual}) {
    if (!aligned(*t, call.m)) return false;
  }
  return true;
}

BackwardPlan plan_of(const spec::BackwardCall& call, const Device& device) {
  BackwardPlan plan;
  const bool rows = call.m > 0 && (call.dx.present || call.dresidual.present);
  const int vectors = (call.dweight.present ? 1 : 0) + (call.dbias.present ? 1 : 0);
  const bool columns = vectors > 0;
  // Columns read what rows are written over; without dy they read nothing.
  const bool in_place =
      rows && columns && call.dy.present && (same_place(call.dx, call.dy) || same_place(call.dx, call.s));
  const bool rare = !call.layer_norm && call.dbias.present;
  const bool whole = whole_chunks(call), single = matrices(call) == Type::f32;
  if (rows && call.dy.present && !rare && call.m <= kMostRows && (in_place || worth_strips(call.m))) {
    const auto sectors = [&](const Rows& t) { return starts_at(t, call.m, 32); };
    plan.strips = plan_strips(call.m, call.n,
                              {.single = single,
                               .layer = call.layer_norm,
                               .add = call.ds.present,
                               .whole = whole,
                               .sectors = sectors(call.dy) && sectors(call.s) && sectors(call.ds)},
                              device);
  }
  if (plan.strips.fits) {
    if (columns) {
      plan.scratch.data = static_cast<std::size_t>(vectors * plan.strips.groups * plan.strips.pitch) * sizeof(float);
      plan.scratch.counters = kCounterBytes;
    }
    return plan;
  }
  plan.split = plan_split(call.m, call.n, {rows, vectors, single, whole}, device);
  if (plan.split.rows.wide && plan.split.row_blocks > 0 && call.dy.present && plan.split.whole) {
    plan.split.cached = split_cached_tiles(call.n, plan.split.single, columns, device);
  }
  plan.ordered = in_place && plan.split.slabs > 0;
  if (plan.ordered) plan.scratch.counters = kCounterBytes;
  return plan;
}

Scratch most_scratch(const spec::BackwardCall& call, const Device& device) {
  Scratch most;
  for (const bool anywhere : {false, true}) {
    for (const bool in_place : {false, true}) {
      // Addresses that nothing is read from: they say where rows start, and what is written over what.
      spec::BackwardCall like = call;
      alignas(16) std::array<std::byte, std::size_t{16} * 6> places{};
      std::byte* next = places.data() + (anywhere ? 4 : 0);
      const auto place = [&](auto& t) {
        t.data = next;
        next += 16;
      };
      for (Rows* t : {&like.dy, &like.ds, &like.s, &like.dx, &like.dresidual}) place(*t);
      place(like.weight);
      if (in_place) like.dx.data = like.dy.data;
      const Scratch scratch = plan_of(like, device).scratch;
      most.data = std::max(most.data, scratch.data);
      most.counters = std::max(most.counters, scratch.counters);
    }
  }
  return most;
}

ForwardPlan plan_of(const spec::ForwardCall& call, const Device& device) {
  const auto bytes = [&](const Vec& v) {
    return v.present && call.y.present ? static_cast<int>(spec::size_of(v.type)) : 0;
  };
  return plan_forward(call.m, call.n,
                      {.single = matrices(call) == Type::f32,
                       .whole = whole_chunks(call),
                       .layer = call.layer_norm,
                       .add = call.residual.present,
                       .weight_bytes = bytes(call.weight),
                       .bias_bytes = bytes(call.bias)},
                      device);
}

}  // namespace truenorm::cuda
