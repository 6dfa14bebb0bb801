#include <c10/util/StringUtil.h>

#include <csetjmp>
#include <cstdio>
// After <cstdio>, which it needs.
#include <jpeglib.h>

#include <jerror.h>

#include "datasets/image_file.h"

namespace retinue {
namespace {

/// Where libjpeg's errors go: it may not return from them.
struct JpegErrors {
  jpeg_error_mgr manager;  ///< First: libjpeg has a pointer to it.
  std::jmp_buf escape;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void escape_from(j_common_ptr jpeg) {
  auto& errors = *reinterpret_cast<JpegErrors*>(jpeg->err);
  errors.manager.format_message(jpeg, errors.text);
  std::longjmp(errors.escape, 1);
}

/// Warnings are no errors to libjpeg, even for a file without its second half.
void escape_from_warning(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_MUST_RESYNC:
      escape_from(jpeg);
    default:
      break;
  }
}

/// libjpeg jumps back into it, so it has no objects with destructors. `problem` is an error's text.
bool read_jpeg_header(jpeg_decompress_struct& jpeg, JpegErrors& errors, std::span<const std::uint8_t> bytes) {
  if (setjmp(errors.escape) != 0) return false;
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  return true;
}

bool read_jpeg_rows(jpeg_decompress_struct& jpeg, JpegErrors& errors, std::uint8_t* pixels, std::size_t row_bytes) {
  if (setjmp(errors.escape) != 0) return false;
  jpeg_start_decompress(&jpeg);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels + jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

struct Jpeg {
  Jpeg() {
    decompress.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = escape_from;
    errors.manager.emit_message = escape_from_warning;
    jpeg_create_decompress(&decompress);
  }
  ~Jpeg() { jpeg_destroy_decompress(&decompress); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  std::string problem() const { return c10::str("is damaged, truncated or no JPEG file: ", errors.text); }

  JpegErrors errors{};
  jpeg_decompress_struct decompress{};
};

}  // namespace

std::string decode_jpeg(std::span<const std::uint8_t> bytes, Decode what, DecodedImage& image) {
  Jpeg jpeg;
  if (!read_jpeg_header(jpeg.decompress, jpeg.errors, bytes)) return jpeg.problem();
  const J_COLOR_SPACE model = jpeg.decompress.jpeg_color_space;
  if (model == JCS_CMYK || model == JCS_YCCK) return "is a JPEG of colour model CMYK; convert it to RGB";
  jpeg.decompress.out_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  std::string problem = begin_image(jpeg.decompress.image_height, jpeg.decompress.image_width, what, image);
  if (!problem.empty() || what == Decode::kSize) return problem;
  const auto row_bytes = static_cast<std::size_t>(image.size.width * image.channels);
  if (!read_jpeg_rows(jpeg.decompress, jpeg.errors, image.pixels.data(), row_bytes)) return jpeg.problem();
  return "";
}

}  // namespace retinue
