// truenorm bench: everything but the times themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "cli/bench_case.hpp"
#include "cli/bench_cuda.hpp"
#include "cli/bench_group.hpp"
#include "cli/bench_measure.hpp"
#include "cli/bench_plan.hpp"
#include "cli/bench_report.hpp"
#include "cli/elements.hpp"
#include "cli/error.hpp"
#include "cli/floor.hpp"

namespace truenorm::cli {
namespace {

std::string refusal(const BenchOptions& options) {
  try {
    plan_bench(options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// ---- The plan
// --------------------------------------------------------------------------------------------------------

TEST(BenchPlan, TheDefaultIsEverything) {
  const BenchPlan plan = plan_bench({});
  EXPECT_EQ(plan.ops.size(), 4U);
  EXPECT_EQ(plan.directions.size(), 3U);
  EXPECT_EQ(plan.dtypes, (std::vector<tn_dtype>{TN_F32, TN_BF16, TN_F16}));
  EXPECT_EQ(plan.shapes, (std::vector<BenchShape>{{8192, 4096}, {2048, 768}, {131072, 128}, {1, 4096}}));
  EXPECT_EQ(plan.threads.front(), 1);
  EXPECT_EQ(plan.threads.back(), hardware_threads());
  EXPECT_EQ(plan.rounds, 7);
  EXPECT_DOUBLE_EQ(plan.sample_seconds, 0.02);
  EXPECT_GE(plan.rotate_bytes, 400'000'000U);
}

TEST(BenchPlan, FiltersChooseAndEqualOnesCountOnce) {
  BenchOptions options;
  options.ops = {"layer_norm", "layer_norm"};
  options.directions = {"frozen"};
  options.dtypes = {"f16"};
  options.shapes = {"3x5", "3x5"};
  options.m = {7};
  options.n = {1, 2};
  options.threads = {"2", "2", "1"};
  options.rotate_mb = 1;
  const BenchPlan plan = plan_bench(options);
  ASSERT_EQ(plan.ops.size(), 1U);
  EXPECT_EQ(plan.ops.front().op, TN_LAYER_NORM);
  EXPECT_FALSE(plan.ops.front().add);
  EXPECT_EQ(plan.directions, std::vector{Direction::frozen});
  EXPECT_EQ(plan.dtypes, std::vector<tn_dtype>{TN_F16});
  EXPECT_EQ(plan.shapes, (std::vector<BenchShape>{{3, 5}, {7, 1}, {7, 2}}));
  EXPECT_EQ(plan.threads, (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(plan.rotate_bytes, 1'000'000U);
  EXPECT_EQ(plan.groups(), 6U);
}

TEST(BenchPlan, QuickIsSmallerAndStillTakesFilters) {
  BenchOptions options;
  options.quick = true;
  EXPECT_LT(plan_bench(options).groups(), plan_bench({}).groups());
  EXPECT_EQ(plan_bench(options).rounds, 3);
  options.rounds = 5;
  options.dtypes = {"f16"};
  EXPECT_EQ(plan_bench(options).rounds, 5);
  EXPECT_EQ(plan_bench(options).dtypes, std::vector<tn_dtype>{TN_F16});
}

TEST(BenchPlan, WrongOptionsAreNamed) {
  const auto with = [](auto member, auto value) {
    BenchOptions options;
    options.*member = value;
    return refusal(options);
  };
  using Texts = std::vector<std::string>;
  EXPECT_NE(with(&BenchOptions::ops, Texts{"batch_norm"}).find("--op does not know 'batch_norm'"), std::string::npos);
  EXPECT_NE(with(&BenchOptions::directions, Texts{"up"}).find("--direction"), std::string::npos);
  EXPECT_NE(with(&BenchOptions::dtypes, Texts{"f64"}).find("--dtype"), std::string::npos);
  EXPECT_NE(with(&BenchOptions::isas, Texts{"mmx"}).find("--isa"), std::string::npos);
  EXPECT_NE(with(&BenchOptions::threads, Texts{"0"}).find("--threads"), std::string::npos);
  EXPECT_NE(with(&BenchOptions::threads, Texts{"2000"}).find("--threads"), std::string::npos);
  EXPECT_NE(with(&BenchOptions::threads, Texts{"two"}).find("--threads"), std::string::npos);
  for (const int rounds : {-1, 0, 1001}) {
    EXPECT_NE(with(&BenchOptions::rounds, rounds).find("--rounds"), std::string::npos) << rounds;
  }
  for (const double ms : {-1.0, 0.0, 1e9, std::nan("")}) {
    EXPECT_NE(with(&BenchOptions::sample_ms, ms).find("--sample-ms"), std::string::npos) << ms;
  }
  for (const int64_t megabytes : {-1, 0, 1 << 30}) {
    EXPECT_NE(with(&BenchOptions::rotate_mb, megabytes).find("--rotate-mb"), std::string::npos) << megabytes;
  }
  EXPECT_NE(with(&BenchOptions::m, std::vector<int64_t>{4}).find("--m and --n"), std::string::npos);
  for (const char* text :
       {"", "x", "3", "3x", "x5", "3x5x7", "0x5", "3x-5", "3 x 5", "3x5 ", "99999999999999999999x1", "2147483648x2"}) {
    EXPECT_NE(with(&BenchOptions::shapes, Texts{text}).find("--shape"), std::string::npos) << text;
  }
}

TEST(BenchPlan, CudaHasShapesOfItsOwnAndNoCpuOptions) {
  BenchOptions options;
  options.device = "cuda:1";
  const BenchPlan plan = plan_bench(options);
  EXPECT_EQ(plan.place.device, TN_CUDA);
  EXPECT_EQ(plan.place.index, 1);
  EXPECT_EQ(plan.shapes.size(), 13U);
  EXPECT_EQ(plan.groups(), 13U * 3U);
  EXPECT_TRUE(plan.isas.empty());
  EXPECT_GE(plan.rotate_bytes, 400'000'000U);
  options.threads = {"1"};
  EXPECT_NE(refusal(options).find("--threads is for the CPU"), std::string::npos);
  options.threads.clear();
  options.isas = {"auto"};
  EXPECT_NE(refusal(options).find("--isa is for the CPU"), std::string::npos);
  options.isas.clear();
  options.sample_ms = 5;
  EXPECT_NE(refusal(options).find("--sample-ms is for the CPU"), std::string::npos);
  options = {};
  options.programmatic = true;
  EXPECT_NE(refusal(options).find("--programmatic is for --device cuda"), std::string::npos);
  options.device = "cuda";
  EXPECT_TRUE(plan_bench(options).programmatic);
  for (const char* device : {"", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda1", "gpu", "cuda:99999999999"}) {
    options = {};
    options.device = device;
    EXPECT_NE(refusal(options).find("--device"), std::string::npos) << device;
  }
}

TEST(BenchPlan, LayoutAndTheWeightsType) {
  EXPECT_EQ(plan_bench({}).weight_dtype, TN_DTYPE_NONE);
  EXPECT_EQ(plan_bench({}).layout.row_gap, 0);
  EXPECT_FALSE(plan_bench({}).layout.in_place);
  EXPECT_EQ(layout_line(plan_bench({})), "");
  BenchOptions options;
  options.weight_dtype = "f32";
  options.row_gap = 1;
  options.in_place = true;
  options.shapes = {"3x128"};
  const BenchPlan plan = plan_bench(options);
  EXPECT_EQ(plan.weight_dtype, TN_F32);
  EXPECT_EQ(plan.layout.row_gap, 1);
  EXPECT_TRUE(plan.layout.in_place);
  EXPECT_EQ(layout_line(plan),
            "weights in f32; 1 element between rows; in place: y over x, s over the residual, dx over dy\n");
  options.shapes = {"4096x128", "3x127"};
  EXPECT_NE(refusal(options).find("--in-place takes rows of 128 columns or more"), std::string::npos);
  options.in_place = false;
  EXPECT_EQ(refusal(options), "");
  for (const int64_t gap : {int64_t{-1}, int64_t{1} << 21}) {
    options.row_gap = gap;
    EXPECT_NE(refusal(options).find("--row-gap takes 0 to"), std::string::npos) << gap;
  }
  options.row_gap = 0;
  options.weight_dtype = "f64";
  EXPECT_NE(refusal(options).find("--weight-dtype does not know 'f64'"), std::string::npos);
}

TEST(BenchCuda, AGraphHoldsManyCalls) {
  EXPECT_EQ(graph_calls(4'000'000, 800'000'000), 200);
  EXPECT_EQ(graph_calls(3'999'999, 800'000'000), 201);
  EXPECT_EQ(graph_calls(16384, 800'000'000), 1000);
  EXPECT_EQ(graph_calls(900'000'000, 800'000'000), 10);
}

TEST(BenchPlan, TrafficCountsMatrices) {
  const BenchOp plain{"layer_norm", TN_LAYER_NORM, false};
  const BenchOp add{"add_layer_norm", TN_LAYER_NORM, true};
  EXPECT_EQ(traffic(plain, Direction::forward), (Traffic{1, 1}));
  EXPECT_EQ(traffic(plain, Direction::backward), (Traffic{2, 1}));
  EXPECT_EQ(traffic(plain, Direction::frozen), (Traffic{2, 1}));
  EXPECT_EQ(traffic(add, Direction::forward), (Traffic{2, 2}));
  EXPECT_EQ(traffic(add, Direction::backward), (Traffic{3, 1}));
}

// ---- Samples
// ---------------------------------------------------------------------------------------------------------

TEST(Summarise, MedianAndRange) {
  const Summary odd = summarise({5, 1, 3});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 5);
  EXPECT_EQ(summarise({4, 1, 3, 2}).median, 2.5);
  EXPECT_EQ(summarise({7}).median, 7);
  EXPECT_TRUE(std::isnan(summarise({}).median));
}

TEST(Measure, EveryRoundSamplesEveryEntryAndSetsComeInTurn) {
  std::vector<size_t> sets;
  std::vector<int> order;
  std::vector<Timed> timed;
  for (int i = 0; i < 3; ++i) {
    timed.push_back({[&, i](size_t set) {
      sets.push_back(set);
      order.push_back(i);
    }});
  }
  measure(timed, {5, 1e-9, 4, 1});
  for (const Timed& entry : timed) {
    EXPECT_EQ(entry.seconds.size(), 5U);
    EXPECT_GE(entry.calls, 1);
  }
  for (size_t i = 0; i < sets.size(); ++i) ASSERT_EQ(sets[i], i % 4);
  const std::vector<int> rounds(order.end() - 15, order.end());
  std::set<std::vector<int>> orders;
  for (auto round = rounds.begin(); round != rounds.end(); round += 3) {
    orders.insert({round, round + 3});
    EXPECT_EQ(std::set<int>(round, round + 3).size(), 3U);
  }
  EXPECT_GT(orders.size(), 1U) << "the rounds are not shuffled";
}

// ---- The copies
// ------------------------------------------------------------------------------------------------------

TEST(CopyThreads, EveryTaskRunsOnce) {
  for (const int32_t count : {1, 2, 5}) {
    CopyThreads threads(count);
    EXPECT_EQ(threads.count(), count);
    for (const int64_t tasks : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      threads.run(tasks, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      for (const auto& run : runs) ASSERT_EQ(run, 1);
    }
  }
}

struct Arrays {
  std::vector<Buffer> reads, writes;
  CopySet set;

  Arrays(const std::vector<size_t>& read_sizes, const std::vector<size_t>& write_sizes) {
    for (const size_t size : read_sizes) {
      const auto bytes = reads.emplace_back(size + 1).bytes().first(size);
      for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + reads.size() * 31 + 1);
      set.reads.emplace_back(bytes);
    }
    for (const size_t size : write_sizes) {
      const auto bytes = writes.emplace_back(size + 1).bytes();
      std::fill(bytes.begin(), bytes.end(), std::byte{0xEE});
      set.writes.push_back(bytes.first(size));
    }
  }

  bool untouched_beyond() const {
    return std::all_of(writes.begin(), writes.end(),
                       [](const Buffer& buffer) { return buffer.bytes().back() == std::byte{0xEE}; });
  }
};

TEST(CopyOnce, EveryWayWritesEveryByteAndNoOther) {
  CopyThreads threads(2);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{4097}, size_t{3} << 20U}) {
    for (size_t reads = 1; reads <= 5; ++reads) {
      for (size_t writes = 1; writes <= 3; ++writes) {
        Arrays arrays(std::vector<size_t>(reads, size), std::vector<size_t>(writes, size));
        for (const CopyWay way : copy_ways(arrays.set)) {
          for (const auto& out : arrays.set.writes) std::fill(out.begin(), out.end(), std::byte{0xEE});
          copy_once(arrays.set, way, threads);
          EXPECT_TRUE(arrays.untouched_beyond());
          for (size_t w = 0; w < writes; ++w) {
            if (way == CopyWay::library) {
              EXPECT_TRUE(
                  std::equal(arrays.set.writes[w].begin(), arrays.set.writes[w].end(), arrays.set.reads[w].begin()));
              continue;
            }
            if (reads > 4 || w >= 2) continue;  // passed over one by one
            for (size_t i = 0; i < size / 64 * 64 && i < 200; ++i) {
              std::byte expected{0};
              for (const auto& in : arrays.set.reads) expected ^= in[i];
              ASSERT_EQ(arrays.set.writes[w][i], expected) << copy_way_name(way) << " byte " << i;
            }
          }
          for (const auto& out : arrays.set.writes) {
            const auto left = std::count(out.begin(), out.end(), std::byte{0xEE});
            // The pattern itself may contain the mark: about one byte in 256.
            EXPECT_LE(left, static_cast<std::ptrdiff_t>(size / 100 + 1)) << copy_way_name(way);
          }
        }
      }
    }
  }
}

TEST(CopyOnce, SizesMayDiffer) {
  CopyThreads threads(2);
  Arrays arrays({4'000'000, 2'000'000, 100}, {2'000'000, 50});
  for (const CopyWay way : copy_ways(arrays.set)) {
    EXPECT_NE(way, CopyWay::library);
    copy_once(arrays.set, way, threads);
    EXPECT_TRUE(arrays.untouched_beyond());
  }
  EXPECT_EQ(arrays.set.bytes(), 8'000'150U);
}

TEST(CopyWays, StreamingStoresWantAlignedWrites) {
  Arrays arrays({1024}, {1024});
  const auto has_streaming = [&] {
    const auto ways = copy_ways(arrays.set);
    return std::find(ways.begin(), ways.end(), CopyWay::streaming) != ways.end();
  };
  const bool when_aligned = has_streaming();
#if defined(__x86_64__)
  EXPECT_TRUE(when_aligned);
#else
  EXPECT_FALSE(when_aligned);
#endif
  arrays.set.reads[0] = arrays.set.reads[0].first(1000);
  arrays.set.writes[0] = arrays.set.writes[0].subspan(8, 1000);
  EXPECT_FALSE(has_streaming());
}

TEST(CopyFloor, IsPositive) {
  CopyThreads threads(2);
  const std::array<size_t, 2> reads{1U << 20U, 1U << 20U};
  const std::array<size_t, 1> writes{1U << 20U};
  const double seconds = copy_floor_seconds(reads, writes, threads);
  EXPECT_GT(seconds, 0);
  EXPECT_TRUE(std::isfinite(seconds));
}

// ---- A whole group, and what is said of it
// ---------------------------------------------------------------------------

BenchPlan small_plan() {
  BenchOptions options;
  options.shapes = {"64x48"};
  options.dtypes = {"bf16"};
  options.threads = {"2"};
  options.isas = {"scalar", "auto"};
  options.rounds = 3;
  options.sample_ms = 0.05;
  options.rotate_mb = 1;
  return plan_bench(options);
}

BenchGroup small_group(const BenchPlan& plan) {
  BenchMemory memory;
  memory.prepare(plan.shapes[0], plan.dtypes[0], plan.rotate_bytes);
  return run_group(plan, memory, plan.threads[0]);
}

TEST(BenchMemory, SetsDoNotOverlapAndAreEnough) {
  BenchMemory memory;
  for (const BenchShape shape : {BenchShape{3, 5}, BenchShape{1, 4096}, BenchShape{100, 1000}}) {
    memory.prepare(shape, TN_F32, 3'000'000);
    EXPECT_GE(memory.sets() * 2 * memory.matrix_bytes(), 3'000'000U);
    const std::byte* end = nullptr;
    for (const size_t set : {size_t{0}, memory.sets() - 1}) {
      for (size_t i = 0; i < BenchMemory::kInputs + BenchMemory::kOutputs; ++i) {
        const auto matrix =
            i < BenchMemory::kInputs ? memory.input(set, i) : memory.output(set, i - BenchMemory::kInputs);
        EXPECT_EQ(matrix.size(), memory.matrix_bytes());
        EXPECT_EQ(reinterpret_cast<uintptr_t>(matrix.data()) % 64, 0U);
        EXPECT_GE(matrix.data(), end);
        end = matrix.data() + matrix.size();
      }
    }
  }
}

TEST(BenchMemory, GapsMakeRoomAndDoNotCount) {
  BenchMemory memory;
  memory.prepare({100, 130}, TN_F16, 1'000'000, {7, false});
  EXPECT_EQ(memory.matrix_bytes(), 100U * 130U * 2U);
  EXPECT_GE(memory.input(0, 1).data() - memory.input(0, 0).data(), 100 * (130 + 7) * 2);
  const size_t sets = memory.sets();
  memory.prepare({100, 130}, TN_F16, 1'000'000, {7, true});
  EXPECT_GE(memory.sets(), 2 * sets - 1);  // one matrix is both input and output
}

TEST(BenchMemory, WhatDoesNotFitIsRefused) {
  if (free_memory() == std::numeric_limits<size_t>::max()) GTEST_SKIP() << "the system does not say";
  BenchMemory memory;
  EXPECT_THROW(memory.prepare({int64_t{1} << 40, 1}, TN_F32, 1), UserError);
}

// Where matrices lie, gaps and all, as FP32.
struct Values {
  explicit Values(const BenchMemory& memory)
      : width(memory.shape().n + memory.layout().row_gap), n(memory.shape().n), dtype(memory.dtype()) {
    const auto count = static_cast<size_t>(memory.shape().m * width);
    for (size_t i = 0; i < BenchMemory::kInputs; ++i) matrices.push_back(read(memory.input(0, i), count));
    for (size_t i = 0; i < BenchMemory::kOutputs; ++i) matrices.push_back(read(memory.output(0, i), count));
  }

  std::vector<float> read(std::span<const std::byte> matrix, size_t count) const {
    std::vector<float> out(count);
    convert(dtype, {matrix.data(), count * tn_dtype_size(dtype)}, TN_F32, std::as_writable_bytes(std::span(out)));
    return out;
  }
  std::set<size_t> changed(const Values& before) const {
    std::set<size_t> out;
    for (size_t i = 0; i < matrices.size(); ++i) {
      if (matrices[i] != before.matrices[i]) out.insert(i);
    }
    return out;
  }
  bool same_gaps(const Values& before) const {
    for (size_t i = 0; i < matrices.size(); ++i) {
      for (size_t at = 0; at < matrices[i].size(); ++at) {
        const bool gap = static_cast<int64_t>(at) % width >= n;
        if (gap && matrices[i][at] != before.matrices[i][at]) return false;
      }
    }
    return true;
  }

  int64_t width, n;
  tn_dtype dtype;
  std::vector<std::vector<float>> matrices;  // the inputs, then the outputs
};

class BenchInPlace : public testing::TestWithParam<tn_dtype> {};

// Whatever runs how often, and after what: no value grows, vanishes or is lost.
TEST_P(BenchInPlace, OutputsGoOverInputsWhichKeepTheirMagnitude) {
  constexpr double kLeast = 1e-3, kMost = 25;  // mean squares; they begin near 1
  BenchMemory memory;
  memory.prepare({4, 131}, GetParam(), 1, {5, true});
  const BenchVectors vectors(memory, TN_F32);
  tn_exec exec{};
  exec.struct_size = sizeof(exec);
  for (int pass = 0; pass < 2; ++pass) {
    for (const BenchOp& op : kBenchOps) {
      for (const Direction direction : {Direction::forward, Direction::backward, Direction::frozen}) {
        const std::string what = std::string(op.name) + " " + direction_name(direction);
        BenchCall call(op, direction, memory, vectors, exec);
        const Values before(memory);
        for (int i = 0; i < 1001; ++i) call(0);
        const Values after(memory);
        const std::set<size_t> written =
            op.add && direction == Direction::forward ? std::set<size_t>{0, 2} : std::set<size_t>{0};
        EXPECT_EQ(after.changed(before), written) << what;
        EXPECT_TRUE(after.same_gaps(before)) << what;
        for (const size_t i : written) {
          double sum = 0;
          for (const float value : after.matrices[i]) sum += static_cast<double>(value) * static_cast<double>(value);
          const double mean = sum / static_cast<double>(after.matrices[i].size());
          EXPECT_TRUE(mean > kLeast && mean < kMost) << what << ", matrix " << i << ": " << mean;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BenchInPlace, testing::Values(TN_F32, TN_F16, TN_BF16));

// The other type of weights, and gaps, are what the library is given: a row of the output has the values of a dense
// one.
TEST(BenchCall, GapsAndWeightsOfAnotherType) {
  BenchMemory memory;
  memory.prepare({3, 100}, TN_BF16, 1, {9, false});
  const BenchVectors vectors(memory, TN_F32);
  EXPECT_EQ(vectors.weight.dtype, TN_F32);
  EXPECT_EQ(vectors.bias.dtype, TN_F32);
  EXPECT_EQ(vectors.dweight.dtype, TN_F32);
  tn_exec exec{};
  exec.struct_size = sizeof(exec);
  BenchCall(kBenchOps[0], Direction::forward, memory, vectors, exec)(0);
  const Values found(memory);
  const auto* const weight = static_cast<const float*>(vectors.weight.data);
  for (size_t row = 0; row < 3; ++row) {
    const float* const x = found.matrices[0].data() + row * 109;
    const float* const y = found.matrices[BenchMemory::kInputs].data() + row * 109;
    const double squares = std::inner_product(x, x + 100, x, 0.0);
    for (size_t i = 0; i < 100; ++i) {
      const double expected = x[i] / std::sqrt(squares / 100 + 1e-6) * weight[i];
      ASSERT_NEAR(y[i], expected, 0.005 * std::abs(expected)) << row << ", " << i;
    }
  }
}

TEST(BenchGroup, EveryCallIsTimedAndHasTheFloorOfItsTraffic) {
  const BenchPlan plan = small_plan();
  const BenchGroup group = small_group(plan);
  ASSERT_EQ(group.results.size(), 2U * 4U * 3U);
  EXPECT_EQ(group.results.front().isa, "scalar");
  EXPECT_EQ(group.results.back().isa, tn_isa_name(widest_isa()));
  EXPECT_GT(group.noise, 0);
  for (const OpResult& result : group.results) {
    EXPECT_EQ(result.samples.size(), 3U);
    EXPECT_GT(result.seconds.median, 0);
    EXPECT_EQ(result.floor.traffic, traffic(result.op, result.direction));
    EXPECT_EQ(result.bytes,
              size_t{64 * 48 * 2} * static_cast<size_t>(result.floor.traffic.reads + result.floor.traffic.writes));
    EXPECT_EQ(result.workspace_bytes > 0, result.direction == Direction::backward);
    for (const FloorResult& copy : group.copies) {
      if (copy.traffic != result.floor.traffic) continue;
      EXPECT_LE(result.floor.seconds.median, copy.seconds.median);
    }
  }
}

TEST(BenchReport, JsonHasWhatTheTableHas) {
  const BenchPlan plan = small_plan();
  const std::vector<BenchGroup> groups{small_group(plan)};
  const auto json = nlohmann::json::parse(bench_json(plan, "cpu", this_machine(), groups).dump());
  for (const char* key : {"version", "order_version", "device", "machine", "rounds", "sample_ms", "rotate_bytes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* key : {"cpu", "arch", "threads"}) EXPECT_TRUE(json["machine"].contains(key)) << key;
  ASSERT_EQ(json["groups"].size(), 1U);
  const auto& group = json["groups"][0];
  EXPECT_EQ(group["m"], 64);
  EXPECT_EQ(group["n"], 48);
  EXPECT_EQ(group["dtype"], "bf16");
  EXPECT_EQ(group["weight_dtype"], "bf16");
  EXPECT_EQ(group["row_gap"], 0);
  EXPECT_EQ(group["in_place"], false);
  EXPECT_EQ(group["threads"], 2);
  EXPECT_TRUE(group["noise"].is_number());
  EXPECT_GE(group["copies"].size(), 4U);
  ASSERT_EQ(group["results"].size(), 24U);
  for (const auto& result : group["results"]) {
    for (const char* key : {"op", "direction", "isa", "median_us", "min_us", "max_us", "samples_us", "calls_per_sample",
                            "bytes", "gb_per_s", "workspace_bytes", "floor", "ratio"}) {
      EXPECT_TRUE(result.contains(key)) << key;
    }
    EXPECT_EQ(result["samples_us"].size(), 3U);
    EXPECT_NEAR(result["ratio"].get<double>(),
                result["median_us"].get<double>() / result["floor"]["median_us"].get<double>(), 1e-9);
  }
}

TEST(BenchReport, CudaHasColdTimes) {
  const BenchPlan plan = small_plan();
  BenchGroup group = small_group(plan);
  group.threads = 0;
  for (OpResult& result : group.results) {
    result.isa.clear();
    result.cold = Summary{4e-6, 3e-6, 5e-6};
    result.cold_floor = Summary{2e-6, 1e-6, 3e-6};
  }
  Machine machine = this_machine();
  machine.cuda = CudaDevice{"A GPU", 9, 0, 132, 1, 2};
  const auto json = nlohmann::json::parse(bench_json(plan, "cuda", machine, {group}).dump());
  EXPECT_EQ(json["machine"]["cuda"]["name"], "A GPU");
  EXPECT_EQ(json["machine"]["cuda"]["compute_capability"], "9.0");
  EXPECT_FALSE(json["groups"][0].contains("threads"));
  for (const auto& result : json["groups"][0]["results"]) {
    EXPECT_FALSE(result.contains("isa"));
    EXPECT_DOUBLE_EQ(result["cold_ratio"].get<double>(), 2);
    EXPECT_DOUBLE_EQ(result["cold"]["median_us"].get<double>(), 4);
  }
  const std::string rows = table_rows(group);
  const std::string heading = table_heading(TN_CUDA);
  EXPECT_EQ(rows.substr(heading.find(" shape") + 1, 5), "64x48");
}

TEST(BenchReport, TheTableLinesUp) {
  const BenchPlan plan = small_plan();
  const std::string heading = table_heading();
  const std::string rows = table_rows(small_group(plan));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 24 + 2);
  const size_t column = heading.find(" shape") + 6;
  for (size_t at = 0, line = 0; line < 24; ++line, at = rows.find('\n', at) + 1) {
    EXPECT_EQ(rows.substr(at + column - 5, 5), "64x48");
  }
  EXPECT_NE(rows.find("noise: rms_norm forward against itself"), std::string::npos);
}

}  // namespace
}  // namespace truenorm::cli
