/* RMSNorm of a small matrix with the C interface: builds against an installed truenorm. */
#include <stdio.h>
#include <truenorm/truenorm.h>

enum { kRows = 2, kN = 4 };

int main(void) {
  float x[kRows][kN] = {{1, 2, 3, 4}, {-2, 0, 2, 0}};
  float weight[kN] = {1, 1, 1, 2};
  float y[kRows][kN];

  tn_forward_args args = {.struct_size = sizeof(args), .op = TN_RMS_NORM, .eps = 1e-6f};
  args.x = tn_matrix(x, TN_F32, kRows, kN);
  args.weight = tn_vector(weight, TN_F32, kN);
  args.y = tn_matrix(y, TN_F32, kRows, kN);

  tn_error error;
  if (tn_forward(NULL, &args, NULL, &error) != TN_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  for (int row = 0; row < kRows; ++row) {
    printf("%.6f %.6f %.6f %.6f\n", (double)y[row][0], (double)y[row][1], (double)y[row][2], (double)y[row][3]);
  }
  return 0;
}
