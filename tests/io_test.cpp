// The command's readers, writers and element work, apart from the command. Hostile files: tests/cli and tests/fuzz.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "cli/elements.hpp"
#include "cli/error.hpp"
#include "cli/io/atomic_file.hpp"
#include "cli/io/mapped_file.hpp"
#include "cli/io/npy.hpp"
#include "cli/io/safetensors.hpp"
#include "cli/io/shape.hpp"
#include "cli/io/tensor_file.hpp"
#include "cli/text.hpp"

namespace truenorm::cli {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// ---- Formats ----

TEST(Npy, WhatIsWrittenIsRead) {
  const std::string data(24, 'd');
  for (const auto& [dtype, descr, shape] :
       {std::tuple(TN_F32, "<f4", std::vector<int64_t>{2, 3}), std::tuple(TN_F16, "<f2", std::vector<int64_t>{12}),
        std::tuple(TN_F32, "<f4", std::vector<int64_t>{1, 1, 6, 1})}) {
    const std::string header = npy_header({"y", dtype, shape, bytes_of(data)});
    EXPECT_EQ(header.size() % 64, 0U);
    const std::string file = header + data;
    const StoredTensor tensor = read_npy(bytes_of(file), "file");
    EXPECT_EQ(tensor.dtype, dtype);
    EXPECT_EQ(tensor.stored_type, descr);
    EXPECT_EQ(tensor.shape, shape);
    EXPECT_EQ(text_of(tensor.bytes), data);
  }
}

TEST(Npy, HeadersOfEverySize) {
  for (int64_t size = 1; size < 1'000'000'000'000'000'000; size *= 10) {
    const std::string header = npy_header({"y", TN_F32, {0, size}, {}});
    EXPECT_EQ(header.size() % 64, 0U);
    EXPECT_EQ(header.back(), '\n');
    EXPECT_EQ(read_npy(bytes_of(header), "file").shape, (std::vector<int64_t>{0, size}));
  }
}

TEST(Npy, RefusesBf16) { EXPECT_THROW(npy_header({"y", TN_BF16, {1}, {}}), UserError); }

TEST(Safetensors, WhatIsWrittenIsReadWideTypesFirst) {
  const std::string narrow = "abcdef";
  const std::string wide = "ABCDEFGH";
  const std::vector<OutputTensor> tensors{
      {"y", TN_BF16, {1, 3}, bytes_of(narrow)}, {"rstd", TN_F32, {2}, bytes_of(wide)}, {"empty", TN_F16, {0, 7}, {}}};
  const SafetensorsLayout layout = safetensors_layout(tensors);
  EXPECT_EQ(layout.order, (std::vector<size_t>{1, 0, 2}));
  EXPECT_EQ(layout.header.size() % 8, 0U);
  std::string file = layout.header;
  for (const size_t index : layout.order) file += text_of(tensors[index].bytes);
  for (const StoredTensor& read : read_safetensors(bytes_of(file), "file")) {
    const auto& written = read.name == "y" ? tensors[0] : read.name == "rstd" ? tensors[1] : tensors[2];
    EXPECT_EQ(read.name, written.name);
    EXPECT_EQ(read.dtype, written.dtype);
    EXPECT_EQ(read.shape, written.shape);
    EXPECT_EQ(text_of(read.bytes), text_of(written.bytes));
  }
}

TEST(Shape, CountsElementsOrRefuses) {
  const auto count = [](std::vector<int64_t> shape) { return element_count(shape); };
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(count({}), 1);
  EXPECT_EQ(count({3, 4}), 12);
  EXPECT_EQ(count({0, most}), 0);
  EXPECT_EQ(count({most, 1}), most);
  EXPECT_EQ(count({-1}), std::nullopt);
  EXPECT_EQ(count({most, 2}), std::nullopt);
  EXPECT_EQ(count({0, most, 2}), std::nullopt);
}

// ---- Elements ----

template <typename To, typename From>
std::vector<To> converted(tn_dtype from, const std::vector<From>& in, tn_dtype to) {
  std::vector<To> out(in.size());
  convert(from, std::as_bytes(std::span(in)), to, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(Elements, EverySixteenBitValueSurvivesFp32) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const auto& [dtype, mask] : {std::pair(TN_F16, 0x7C00), std::pair(TN_BF16, 0x7F80)}) {
    const auto back = converted<uint16_t>(TN_F32, converted<float>(dtype, all, TN_F32), dtype);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool nan = (all[i] & 0x7FFF) > mask;
      if (nan) {
        EXPECT_GT(back[i] & 0x7FFF, mask);
      } else {
        EXPECT_EQ(back[i], all[i]);
      }
    }
  }
}

TEST(Elements, NarrowingRoundsToNearestEven) {
  const std::vector<float> halfway{1 + 0x1p-8F, 1 + 0x1.8p-7F, 1 + 0x1p-8F + 0x1p-20F, 0x1.FFp127F, -0x1p-149F};
  EXPECT_EQ(converted<uint16_t>(TN_F32, halfway, TN_BF16),
            (std::vector<uint16_t>{0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x8000}));
  const std::vector<float> half{65519, 65520, 0x1p-25F, 0x1.8p-24F, -0.0F};
  EXPECT_EQ(converted<uint16_t>(TN_F32, half, TN_F16), (std::vector<uint16_t>{0x7BFF, 0x7C00, 0, 2, 0x8000}));
}

TEST(Elements, FindsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values{0, 1, -infinity, std::numeric_limits<float>::max(), NAN};
  for (const tn_dtype dtype : {TN_F32, TN_F16, TN_BF16}) {
    std::vector<std::byte> bytes(1 + values.size() * tn_dtype_size(dtype));
    const std::span<std::byte> odd = std::span(bytes).subspan(1);  // any alignment
    convert(TN_F32, std::as_bytes(std::span(values)), dtype, odd);
    const NonFinite found = find_nonfinite(dtype, odd);
    EXPECT_EQ(found.count, dtype == TN_F32 ? 2 : 3);  // the largest FP32 is beyond both others
    EXPECT_EQ(found.first, 2);
  }
  EXPECT_EQ(find_nonfinite(TN_F32, {}).first, -1);
}

TEST(Elements, NormalNumbersDependOnSeedAndPlaceAlone) {
  std::vector<float> longer(100000);
  std::vector<float> shorter(10);
  fill_normal(TN_F32, 5, std::as_writable_bytes(std::span(longer)));
  fill_normal(TN_F32, 5, std::as_writable_bytes(std::span(shorter)));
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), longer.begin()));
  double sum = 0;
  double squares = 0;
  for (const float value : longer) {
    sum += value;
    squares += double{value} * value;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.03);
}

TEST(Elements, ChecksumIsFnv1a) {
  EXPECT_EQ(checksum({}), 0xCBF29CE484222325U);
  EXPECT_EQ(checksum(bytes_of("a")), 0xAF63DC4C8601EC8CU);
  EXPECT_EQ(checksum(bytes_of("foobar")), 0x85944171F73967E8U);
}

// ---- Text ----

TEST(Text, IsSafeToPrint) {
  EXPECT_EQ(printable("plain \xC3\xA9"), "'plain \xC3\xA9'");
  EXPECT_EQ(printable("a\nb\x1B\x7F\xC2\x9B"), "'a\\x0ab\\x1b\\x7f\\x9b'");
  EXPECT_EQ(printable(std::string(119, 'n') + "\xC3\xA9\xC3\xA9"), "'" + std::string(119, 'n') + "...'");
}

TEST(Text, NearestNames) {
  const std::vector<std::string> names{"layer.0.weight", "layer.1.weight", "bias"};
  EXPECT_EQ(nearest_names("layer.1.wieght", names, 2), (std::vector<std::string>{"layer.1.weight", "layer.0.weight"}));
  EXPECT_EQ(nearest_names("x", {}, 3).size(), 0U);
}

// ---- Files ----

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "truenorm_io_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename());
    return found;
  }

  fs::path folder_;
};

TEST_F(Files, AtomicFileAppearsWhole) {
  std::ofstream(path("out")) << "old";
  AtomicFile file(path("out"));
  file.write("new ");
  file.write("text");
  EXPECT_EQ(fs::file_size(path("out")), 3U);
  file.flush();
  EXPECT_EQ(fs::file_size(path("out")), 3U);
  file.commit();
  EXPECT_EQ(text_of(MappedFile(path("out")).bytes()), "new text");
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(Files, AtomicFileLeavesNothingWhenDropped) {
  {
    AtomicFile written(path("out"));
    written.write("text");
    AtomicFile flushed(path("other"));
    flushed.flush();
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(Files, AtomicFileLeavesNothingWhenTheDiskIsFull) {
  // A file size limit stands in for a full disk.
  const auto fill = [&] {
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      AtomicFile file(path("out"));
      file.write(std::string(2000, 'x'));
    } catch (const UserError& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(2);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(fill(), testing::ExitedWithCode(2), "cannot write '.*out': File too large");
  EXPECT_TRUE(names().empty());
}

TEST_F(Files, AtomicFileLeavesNothingOnASignal) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    const auto interrupt = [&] {
      AtomicFile first(path("first"));
      AtomicFile second(path("second"));
      first.write("text");
      second.flush();
      std::raise(signal);
    };
    EXPECT_EXIT(interrupt(), testing::KilledBySignal(signal), "");
    EXPECT_TRUE(names().empty());
  }
}

TEST_F(Files, AnIgnoredSignalStaysIgnored) {
  const auto go_on = [&] {
    std::signal(SIGHUP, SIG_IGN);
    AtomicFile file(path("out"));
    std::raise(SIGHUP);
    file.flush();
    file.commit();
    std::_Exit(0);
  };
  EXPECT_EXIT(go_on(), testing::ExitedWithCode(0), "");
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(Files, AtomicFileReplacesRegularFilesOnly) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", path("link"));
  fs::create_directory(path("folder"));
  for (const char* name : {"pipe", "link", "folder"}) EXPECT_THROW(AtomicFile(path(name)), UserError) << name;
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(names().size(), 3U);
}

TEST_F(Files, AtomicFileNamesWhatItCannotWrite) {
  EXPECT_THROW(AtomicFile(path("no/out")), UserError);
  EXPECT_THROW(AtomicFile(path(std::string(300, 'n'))), UserError);
  EXPECT_THROW(AtomicFile(path(std::string(5000, 'n'))), UserError);
}

TEST_F(Files, MappedFileTakesRegularFilesOnly) {
  std::ofstream(path("empty")).flush();
  EXPECT_TRUE(MappedFile(path("empty")).bytes().empty());
  EXPECT_THROW(MappedFile(path("missing")), UserError);
  EXPECT_THROW(MappedFile(folder_.string()), UserError);
  EXPECT_THROW(MappedFile("/dev/null"), UserError);
}

TEST_F(Files, TensorFileFindsTheName) {
  const std::string data(4, '\0');
  const std::vector<OutputTensor> tensors{{"a:b", TN_F32, {1}, bytes_of(data)}, {"c", TN_F32, {1}, bytes_of(data)}};
  std::ofstream(path("t.safetensors")) << safetensors_layout(tensors).header << data << data;
  EXPECT_EQ(TensorFile(path("t.safetensors:c")).tensor().name, "c");
  EXPECT_EQ(TensorFile(path("t.safetensors:a:b")).tensor().name, "a:b");
  EXPECT_THROW(TensorFile(path("t.safetensors")), UserError);
  EXPECT_THROW(TensorFile(path("t.safetensors:")), UserError);
  EXPECT_THROW(TensorFile(path("t.safetensors:b")), UserError);
}

}  // namespace
}  // namespace truenorm::cli
