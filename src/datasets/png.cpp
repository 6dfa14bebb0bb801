#include <c10/util/StringUtil.h>
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "datasets/image_file.h"

namespace retinue {
namespace {

struct PngBytes {
  std::span<const std::uint8_t> rest;
  char text[200];
};

[[noreturn]] void escape_from_png(png_structp png, png_const_charp text) {
  auto& bytes = *static_cast<PngBytes*>(png_get_error_ptr(png));
  std::strncpy(bytes.text, text, sizeof bytes.text - 1);
  png_longjmp(png, 1);
}

void ignore_warning(png_structp /*png*/, png_const_charp /*text*/) {}

void read_png_bytes(png_structp png, png_bytep into, std::size_t count) {
  auto& bytes = *static_cast<PngBytes*>(png_get_io_ptr(png));
  if (count > bytes.rest.size()) png_error(png, "the file ends early");
  std::memcpy(into, bytes.rest.data(), count);
  bytes.rest = bytes.rest.subspan(count);
}

/// Grey as Pillow makes it, by ITU-R 601: libpng's own is off by one for every second pixel.
void turn_grey(std::vector<std::uint8_t>& pixels) {
  constexpr std::uint32_t kRed = 19595, kGreen = 38470, kBlue = 7471, kHalf = 1u << 15u;
  for (std::size_t at = 0; at < pixels.size() / 3; ++at) {
    const std::uint8_t* const rgb = &pixels[3 * at];
    pixels[at] = static_cast<std::uint8_t>((rgb[0] * kRed + rgb[1] * kGreen + rgb[2] * kBlue + kHalf) >> 16u);
  }
  pixels.resize(pixels.size() / 3);
}

/// libpng jumps back into these two, so they have no objects with destructors.
bool read_png_header(png_structp png, png_infop info, std::int64_t channels) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_info(png, info);
  png_set_expand(png);  // Palettes, fewer than 8 bits, and transparent colours.
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  const bool is_grey = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) == 0;
  if (is_grey && channels == 3) png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return true;
}

bool read_png_rows(png_structp png, png_bytepp rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_image(png, rows);
  png_read_end(png, nullptr);
  return true;
}

class Png {
 public:
  explicit Png(std::span<const std::uint8_t> bytes) : bytes_{bytes, {}} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &bytes_, escape_from_png, ignore_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ != nullptr) png_set_read_fn(png_, &bytes_, read_png_bytes);
  }
  ~Png() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  std::string decode(Decode what, DecodedImage& image) {
    if (info_ == nullptr) return "can't be decoded: libpng has no memory, or is another version";
    if (!read_png_header(png_, info_, image.channels)) return problem();
    std::string size_problem =
        begin_image(png_get_image_height(png_, info_), png_get_image_width(png_, info_), what, image);
    if (!size_problem.empty() || what == Decode::kSize) return size_problem;
    const std::size_t row_bytes = png_get_rowbytes(png_, info_);
    const bool has_colour = png_get_channels(png_, info_) == 3;
    if (row_bytes != static_cast<std::size_t>(image.size.width * (has_colour ? 3 : image.channels)))
      return "is a PNG file of an unknown kind of pixels";
    image.pixels.resize(row_bytes * static_cast<std::size_t>(image.size.height));
    std::vector<png_bytep> rows(static_cast<std::size_t>(image.size.height));
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = image.pixels.data() + row * row_bytes;
    if (!read_png_rows(png_, rows.data())) return problem();
    if (has_colour && image.channels == 1) turn_grey(image.pixels);
    return "";
  }

 private:
  std::string problem() const { return c10::str("is damaged, truncated or no PNG file: ", bytes_.text); }

  PngBytes bytes_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

std::string decode_png(std::span<const std::uint8_t> bytes, Decode what, DecodedImage& image) {
  return Png(bytes).decode(what, image);
}

}  // namespace retinue
