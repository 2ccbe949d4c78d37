// RMSNorm of a small matrix with the C++ interface: builds against an installed truenorm.
#include <truenorm/truenorm.hpp>

#include <cstdio>

int main() {
  constexpr int kRows = 2, kN = 4;
  const float x[kRows][kN] = {{1, 2, 3, 4}, {-2, 0, 2, 0}};
  const float weight[kN] = {1, 1, 1, 2};
  float y[kRows][kN];

  truenorm::Context cpu;  // the CPU, one thread
  cpu.rms_norm({.x = truenorm::matrix(x, truenorm::Type::f32, kRows, kN),
                .weight = truenorm::vector(weight, kN),
                .y = truenorm::matrix(y, truenorm::Type::f32, kRows, kN),
                .eps = 1e-6f});

  for (const auto& row : y) {
    std::printf("%.6f %.6f %.6f %.6f\n", double{row[0]}, double{row[1]}, double{row[2]}, double{row[3]});
  }
}
