// Several host threads, shared and separate pools, pools in all sizes. Meant for ThreadSanitizer as well.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "support/call.hpp"

namespace truenorm::test {
namespace {

void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& t : threads) t.join();
}

// A call of its own for each host thread, over and over, on one pool or none.
class Job {
 public:
  Job(int id, tn_op op, std::int64_t m, std::int64_t n) : rng_(static_cast<std::uint64_t>(id)) {
    const tn_dtype type = id % 3 == 0 ? TN_F32 : id % 3 == 1 ? TN_BF16 : TN_F16;
    f_ = forward_args(op);
    f_.x = arena_.matrix(type, m, n);
    f_.weight = arena_.vector(TN_F32, n);
    fill(f_.x, rng_, Fill::normal);
    fill(f_.weight, rng_, Fill::normal);
    if (id % 2 == 0) {
      f_.bias = arena_.vector(type, n);
      fill(f_.bias, rng_, Fill::normal);
    }
    f_.y = arena_.matrix(type, m, n);
    f_.rstd = arena_.vector(TN_F32, m);
    if (op == TN_LAYER_NORM) f_.mean = arena_.vector(TN_F32, m);
    forward_bits_ = model_forward(f_);
    write_bits(f_.rstd, forward_bits_.rstd);
    if (op == TN_LAYER_NORM) write_bits(f_.mean, forward_bits_.mean);

    b_ = backward_args(op);
    b_.dy = arena_.matrix(type, m, n);
    fill(b_.dy, rng_, Fill::normal);
    b_.s = f_.x;
    b_.weight = f_.weight;
    b_.mean = f_.mean;
    b_.rstd = f_.rstd;
    b_.dx = arena_.matrix(type, m, n);
    b_.dweight = arena_.vector(TN_F32, n);
    b_.dbias = arena_.vector(type, n);
    backward_bits_ = model_backward(b_);
    for (const tn_tensor& t : {f_.y, f_.rstd, b_.dx, b_.dweight, b_.dbias}) arena_.allow(t);
    if (op == TN_LAYER_NORM) arena_.allow(f_.mean);
  }

  void run(tn_threads* pool, int times) {
    const tn_exec exec = on(TN_ISA_AUTO, pool);
    arena_.arm();
    for (int i = 0; i < times; ++i) {
      for (const tn_tensor& t : {f_.y, f_.rstd, b_.dx, b_.dweight, b_.dbias}) spoil(t);
      forward(f_, exec);
      expect_bits(f_, forward_bits_);
      backward(b_, exec);
      expect_bits(b_, backward_bits_);
    }
    EXPECT_TRUE(arena_.intact());
  }

 private:
  Rng rng_;
  Arena arena_;
  tn_forward_args f_{};
  tn_backward_args b_{};
  ForwardBits forward_bits_;
  BackwardBits backward_bits_;
};

constexpr int kTimes = 12;

TEST(Threads, SeveralHostThreadsWithoutAPool) {
  in_threads(
      4, [](int id) { Job(id, id % 2 == 0 ? TN_RMS_NORM : TN_LAYER_NORM, 40, 900 + 100 * id).run(nullptr, kTimes); });
}

TEST(Threads, SeveralHostThreadsShareOnePool) {
  const Pool pool(3);
  in_threads(4, [&](int id) {
    Job(id, id % 2 == 0 ? TN_RMS_NORM : TN_LAYER_NORM, 40, 900 + 100 * id).run(pool.get(), kTimes);
  });
}

TEST(Threads, SeveralHostThreadsWithPoolsOfTheirOwn) {
  in_threads(3, [](int id) {
    const Pool pool(2 + id);
    Job(id, id % 2 == 0 ? TN_RMS_NORM : TN_LAYER_NORM, 40, 900 + 100 * id).run(pool.get(), kTimes);
  });
}

TEST(Threads, SizesTypesAndBiasAlternateOnOnePool) {
  const Pool pool(4);
  Job a(0, TN_RMS_NORM, 30, 1500), b(1, TN_LAYER_NORM, 300, 130), c(2, TN_RMS_NORM, 2, 7000);
  for (int i = 0; i < 4; ++i) {
    for (Job* job : {&a, &b, &c}) job->run(pool.get(), 1);
  }
}

// More threads than there are groups of rows: scratch must suffice for whichever of them take the work.
TEST(Threads, MoreThreadsThanRows) {
  const Pool pool(16);
  for (const std::int64_t m : {1, 2, 3, 5}) Job(0, TN_LAYER_NORM, m, 20000).run(pool.get(), kTimes);
}

TEST(Threads, BackwardOnAFreshThread) {
  const Pool pool(2);
  Job job(1, TN_RMS_NORM, 50, 800);
  job.run(pool.get(), 1);
  std::thread([&] { job.run(pool.get(), 1); }).join();
}

TEST(Threads, PoolsComeAndGo) {
  for (int count = 1; count <= 9; ++count) {
    const Pool pool(count);
    EXPECT_EQ(tn_threads_count(pool.get()), count);
    Job(count, TN_RMS_NORM, 60, 700).run(pool.get(), 1);
  }
  const Pool unused(5);
}

TEST(Threads, CountsOutOfRangeAreRefused) {
  for (const std::int32_t count : {0, -1, 1025, INT32_MAX, INT32_MIN}) {
    tn_threads* pool = reinterpret_cast<tn_threads*>(&pool);
    tn_error error;
    EXPECT_EQ(tn_threads_create(count, &pool, &error), TN_INVALID_ARGUMENT);
    EXPECT_EQ(pool, nullptr);
    EXPECT_EQ(error.message, "count: got " + std::to_string(count) + "; needs 1 to 1024 threads");
  }
  tn_error error;
  EXPECT_EQ(tn_threads_create(2, nullptr, &error), TN_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(error.message), "out: got NULL; needs a place for the pool");
  EXPECT_EQ(tn_threads_count(nullptr), 1);
  tn_threads_destroy(nullptr);
}

}  // namespace
}  // namespace truenorm::test
