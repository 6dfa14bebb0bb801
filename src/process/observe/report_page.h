#pragma once

#include <string_view>

namespace retinue {

/// report_page.html, which the build makes a text of.
extern const std::string_view kReportPage;

}  // namespace retinue
