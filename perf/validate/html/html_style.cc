// Colours and layout of the page, for light and dark. The page follows the reader's setting;
// data-theme="light" or "dark" at <html> overrides that.
#include <fmt/format.h>

#include "perf/validate/html/html_parts.h"

namespace weft::fabric {
namespace {

// r5 to r0: from healthy to nothing arrived; the worse, the more a cell stands out. tN: text on rN.
constexpr std::string_view kLight =
    "--page:#f6f7f9;--card:#ffffff;--ink:#1b222c;--soft:#566070;--line:#d9dee5;--grid:#e8ebf0;"
    "--good:#1a7f4b;--warn:#a35c00;--bad:#c3261d;--none:#566070;--on:#ffffff;"
    "--r5:#d6e6f5;--r4:#fbe3a0;--r3:#f8b36b;--r2:#ec7445;--r1:#c5301f;--r0:#5d0d18;--rn:#eef0f3;"
    "--t5:#1b222c;--t4:#1b222c;--t3:#1b222c;--t2:#1b1208;--t1:#ffffff;--t0:#ffffff;--tn:#566070;"
    "--l5:#4b7fb5;--l4:#b98a00;--l3:#d97706;--l2:#d9480f;--l1:#c3261d;--l0:#5d0d18;--ln:#a9b2bf;";
constexpr std::string_view kDark =
    "--page:#12161c;--card:#1a2029;--ink:#e6eaf0;--soft:#a3adbb;--line:#333c49;--grid:#272f3a;"
    "--good:#58c48c;--warn:#f0b44c;--bad:#ff766b;--none:#a3adbb;--on:#12161c;"
    "--r5:#1f3b57;--r4:#6a5413;--r3:#96571a;--r2:#c25527;--r1:#ef6351;--r0:#ffc9c4;--rn:#20272f;"
    "--t5:#dce8f5;--t4:#fff1c9;--t3:#fff0e0;--t2:#fffaf6;--t1:#1c0503;--t0:#3a0509;--tn:#a3adbb;"
    "--l5:#6da5dc;--l4:#e0bb4a;--l3:#f0994a;--l2:#f77f4d;--l1:#ff766b;--l0:#ffc9c4;--ln:#5b6675;";

constexpr std::string_view kRules = R"(*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:22px;line-height:1.35;margin:0 0 6px}
h2{font-size:17px;margin:36px 0 8px}
h3{font-size:14px;margin:2px 0 6px}
h3 .soft{font-weight:400;margin-left:8px}
p{margin:4px 0}
.soft,.legend{color:var(--soft);font-size:13px}
.banner{border:1px solid var(--line);border-left:8px solid var(--none);background:var(--card);border-radius:6px;padding:16px 20px}
.banner b{color:var(--none)}
.v0{border-left-color:var(--good)}.v0 b{color:var(--good)}
.v1{border-left-color:var(--warn)}.v1 b{color:var(--warn)}
.v2{border-left-color:var(--bad)}.v2 b{color:var(--bad)}
.fault{border:1px solid var(--line);background:var(--card);border-radius:6px;padding:12px 16px;margin:10px 0;display:flex;gap:14px}
.body{min-width:0;flex:1}
.number{flex:none;width:26px;height:26px;border-radius:13px;background:var(--bad);color:var(--on);text-align:center;line-height:26px;font-weight:700}
.light .number{background:var(--warn)}
.fault .what{font-weight:600}
.fault dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 14px;margin:6px 0 0;font-size:14px}
.fault dt{color:var(--soft)}.fault dd{margin:0}
code{font:13px ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:12px}
.maps{display:flex;flex-wrap:wrap;gap:16px}
.maps .wide{max-width:100%}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:3px 12px 3px 0;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th{color:var(--soft);font-weight:600}
th:first-child,td:first-child,.left{text-align:left}
tr.accused td:first-child{font-weight:700;color:var(--bad)}
td.wrap{white-space:normal;min-width:260px}
summary{cursor:pointer;margin:8px 0}
.key{display:inline-flex;align-items:center;margin-right:16px}
.swatch.line{height:5px}
.swatch{display:inline-block;width:14px;height:14px;margin-right:6px;border:1px solid var(--line);border-radius:2px;background:var(--rn)}
svg{display:block}
svg text{fill:var(--ink);font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
svg .soft{fill:var(--soft)}
svg .accused{fill:var(--bad);font-weight:700}
.mid{text-anchor:middle}.end{text-anchor:end}
.cell{stroke:var(--card);stroke-width:1}
.self{fill:var(--grid)}
.box{fill:var(--page);stroke:var(--line)}
.box.marked,.ring{stroke:var(--bad);stroke-width:2.5}
.ring{fill:none}
.bus{stroke:var(--soft);stroke-width:4;stroke-linecap:round}
.bus.marked{stroke:var(--bad);stroke-width:7}
.wire{stroke-width:2.5;fill:none}.wire.marked{stroke-width:5}
.path{stroke:var(--bad);stroke-width:2.5;fill:none;stroke-dasharray:6 4}
.head{fill:var(--bad)}
.badge circle{fill:var(--bad);stroke:var(--card);stroke-width:1.5}
.badge text{fill:var(--on);font-weight:700;text-anchor:middle;font-size:11px}
.axis{stroke:var(--grid)}
.range{stroke:var(--l5);stroke-width:3}
.p50{fill:var(--l5)}.p99{fill:var(--card);stroke:var(--l5);stroke-width:2}.p999{stroke:var(--l5);stroke-width:2}
.bar{fill:var(--l5)}.bar.part{fill:var(--l4)}.rest{fill:var(--grid)}
)";

}  // namespace

std::string html_style() {
  std::string css = fmt::format(
      ":root{{color-scheme:light;{0}}}\n"
      "@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{1}}}}}\n"
      ":root[data-theme=dark]{{color-scheme:dark;{1}}}\n{2}",
      kLight, kDark, kRules);
  for (const char level : std::string_view("543210n"))
    css += fmt::format(
        ".swatch.r{0}{{background:var(--r{0})}}.swatch.line.r{0}{{background:var(--l{0})}}.cell.r{0},.half.r{0}{{fill:var(--r{0})}}"
        "svg .t{0}{{fill:var(--t{0})}}.wire.r{0}{{stroke:var(--l{0})}}.dot.r{0},.tip.r{0}"
        "{{fill:var(--l{0})}}td.r{0}{{background:var(--r{0});color:var(--t{0})}}\n",
        level);
  return css;
}

}  // namespace weft::fabric
