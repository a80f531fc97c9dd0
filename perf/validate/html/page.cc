// Style and script of the page.
#include "perf/validate/html/page.h"

namespace weft::fabric {

// Classes r5 (healthy) to r0 (nothing arrived): worse cells are more prominent.
std::string_view page_style() {
  return R"(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b222c;--soft:#566070;--line:#d9dee5;--good:#1a7f4b;--warn:#a35c00;--bad:#c3261d;
--r5:#d6e6f5;--r4:#fbe3a0;--r3:#f8b36b;--r2:#ec7445;--r1:#c5301f;--r0:#5d0d18;--rn:#eef0f3;--dark:#1b222c;--pale:#fff}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--card:#1a2029;--ink:#e6eaf0;--soft:#a3adbb;--line:#333c49;--good:#58c48c;--warn:#f0b44c;--bad:#ff766b;
--r5:#1f3b57;--r4:#6a5413;--r3:#96571a;--r2:#c25527;--r1:#ef6351;--r0:#ffc9c4;--rn:#20272f;--dark:#e6eaf0;--pale:#1c0503}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.45 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:20px}
h1{font-size:21px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 6px}p{margin:3px 0}
.soft{color:var(--soft);font-size:13px}
.card{border:1px solid var(--line);background:var(--card);border-radius:6px;padding:12px 16px;margin:8px 0;overflow-x:auto}
.banner{border-left:8px solid var(--soft)}
.fault{border-left:5px solid var(--soft);padding-left:12px}.fault b{margin-right:8px}.fault p{margin-top:8px}
.OK{border-left-color:var(--good)}.CRITICAL{border-left-color:var(--bad)}.WARN{border-left-color:var(--warn)}
.fault dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 12px;margin:4px 0 0;font-size:14px}
dt{color:var(--soft)}dd{margin:0}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:2px 10px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600}td:first-child,th:first-child{text-align:left}
.r5{background:var(--r5)}.r4{background:var(--r4)}.r3{background:var(--r3)}.r2{background:var(--r2)}.rn{background:var(--rn)}
.r1,.r0{color:var(--pale)}.r1{background:var(--r1)}.r0{background:var(--r0)}
.key{display:inline-flex;align-items:center;margin-right:14px}.key i{width:14px;height:14px;margin-right:5px;border:1px solid var(--line)}
.map{display:flex;flex-wrap:wrap;gap:6px 3px}.host{display:flex;flex-direction:column;gap:1px}
.host i{width:11px;height:9px}.host.named{margin-right:6px}.host.named i{width:44px}.host span{font-size:11px;font-weight:700;color:var(--bad)}
summary{cursor:pointer;margin:8px 0}
)";
}

std::string_view page_script() {
  return R"(
'use strict';
const R = JSON.parse(document.getElementById('report').textContent);
const MOST_IN_MATRIX = 32, MOST_DETAILED = R.hosts.length > MOST_IN_MATRIX ? 4 : 12;
const main = document.querySelector('main');
main.textContent = '';

// Every text of the report becomes a text node, never markup.
function make(tag, parent, text, names, data) {
  const e = parent.appendChild(document.createElement(tag));
  if (text !== undefined && text !== null) e.textContent = text;
  if (names) e.className = names;
  for (const key in data || {}) e.dataset[key] = data[key];
  return e;
}
const number = v => v === null || v === undefined ? '-' : String(+(+v).toPrecision(3));
const share = v => v === null || v === undefined ? '-' : v === 0 ? '0' :
  v >= 1e-3 ? number(100 * v) + ' %' : v.toExponential(1);
const limits = R.policy.thresholds;
const baseline = {};
for (const p of R.ports) (baseline[p.rail] = baseline[p.rail] || []).push(p.transmit_gbps || 0);
for (const rail in baseline) {
  baseline[rail].sort((a, b) => a - b);
  baseline[rail] = baseline[rail][baseline[rail].length >> 1];
}
function level(gbps, expected) {
  if (gbps === null || gbps === undefined) return 'rn';
  if (gbps <= 0) return 'r0';
  if (!(expected > 0)) return 'rn';
  const part = gbps / expected;
  return part < 0.3 ? 'r1' : part < 0.6 ? 'r2' : part < limits.fail_rate_share ? 'r3' :
    part < limits.warn_rate_share ? 'r4' : 'r5';
}
const reference = p => p.expected_gbps || baseline[p.rail];
const worst = p => {
  const known = [p.transmit_gbps, p.receive_gbps].filter(v => v !== null);
  return known.length ? Math.min(...known) : null;
};

// Causes, each with what follows from it.
const root = i => {
  for (let steps = 0; steps < 99 && R.findings[i].reason !== undefined; ++steps) i = R.findings[i].reason;
  return i;
};
const causes = R.findings.map((f, i) => ({f, i, also: []}))
  .filter(c => c.f.severity !== 'info' && c.f.explained_by === undefined);
R.findings.forEach((f, i) => {
  const cause = f.explained_by === undefined ? null : causes.find(c => c.i === root(i));
  if (cause && f.severity !== 'info') cause.also.push(f);
});

// The hosts of faults, then their peers, then all others.
const order = [];
const add = name => { if (name && !order.includes(name)) order.push(name); };
for (const key of ['host', 'peer'])
  for (const c of causes) if (!c.f.unknown && order.length < 400) add(c.f.where[key]);
const accused = new Set(causes.filter(c => !c.f.unknown).map(c => c.f.where.host));
const names = new Set(order);
for (const h of R.hosts) if (!names.has(h.host)) order.push(h.host);
const of_host = {};
for (const p of R.ports) (of_host[p.host] = of_host[p.host] || []).push(p);
const shown = order.filter(name => of_host[name]).slice(0, MOST_DETAILED);

function part(title, note) {
  make('h2', main, title);
  if (note) make('p', main, note, 'soft');
  return make('div', main, null, 'card');
}
function later(title, fill) {
  const d = make('details', main);
  make('summary', d, title);
  d.addEventListener('toggle', () => { if (d.open && d.children.length === 1) fill(make('div', d, null, 'card')); });
}
function table(parent, heads) {
  const t = make('table', parent), row = make('tr', t);
  for (const h of heads) make('th', row, h);
  return t;
}

const banner = make('div', main, null, 'card banner ' + R.verdict, {verdict: R.verdict, exitCode: R.exit_code});
const kind = R.simulated ? ' (simulated)' : R.emulated ? ' (emulated)' : '';
make('h1', banner, R.verdict + kind + ': ' + R.headline);
make('p', banner, `${R.hosts.length} hosts x ${R.rails} rails, ${R.ranks} ranks, ${R.transport || ''}; ` +
  `${number(R.time_s)} s of ${number(R.budget_s)} s` +
  (R.started ? '; ' + R.started : '') + `; weft ${R.weft_version || ''}`, 'soft');
if (R.failure) make('p', banner, 'the job failed: ' + R.failure);

if (causes.length) {
  const box = part('Causes, most costly to a job first');
  causes.slice(0, 40).forEach((c, n) => {
    const word = c.f.unknown ? 'UNKNOWN' : c.f.where.kind === 'tester' && c.f.severity === 'critical' ? 'TESTER' : c.f.severity.toUpperCase();
    const fault = make('div', box, null, 'fault ' + word, {fault: n + 1});
    const line = make('p', fault);
    make('b', line, `${n + 1}. ${word}`);
    make('span', line, c.f.sentence);
    const list = make('dl', fault);
    const say = (t, d) => { if (d) { make('dt', list, t); make('dd', list, d); } };
    say('sure', c.f.detail + ' [' + c.f.id + ']');
    say('do', c.f.remedy);
    const kinds = {};
    for (const f of c.also) (kinds[f.id] = kinds[f.id] || []).push(f.sentence);
    for (const id in kinds)
      say('also', kinds[id][0] + (kinds[id].length > 1 ? `, and ${kinds[id].length - 1} more like it` : '') + ` [${id}]`);
  });
  if (causes.length > 40) make('p', box, `and ${causes.length - 40} more, in the JSON of this page`);
}

const map = part('Ports', 'A column is a host, a cell its port of one rail: the slower of what it sends and receives. Hosts of faults come first, with their names.');
const legend = make('p', map, null, 'soft');
for (const [c, text] of [['r5', 'healthy'], ['r4', 'warned'], ['r3', 'failed'], ['r2', 'below 60 %'], ['r1', 'below 30 %'], ['r0', 'nothing arrived'], ['rn', 'not measured or no rate known']]) {
  const key = make('span', legend, null, 'key');
  make('i', key, null, c);
  make('span', key, text);
}
const hosts = make('div', map, null, 'map');
for (const name of order) {
  const host = make('div', hosts, null, accused.has(name) ? 'host named' : 'host', {host: name});
  host.title = name;
  for (const p of of_host[name] || []) {
    const cell = make('i', host, null, level(worst(p), reference(p)));
    cell.title = `${name} rail ${p.rail}: sends ${number(p.transmit_gbps)}, receives ${number(p.receive_gbps)} Gb/s`;
  }
  if (accused.has(name)) make('span', host, name);
}

const HEADS = ['port', 'sends', 'receives', 'expected', 'lowest window', 'p50', 'p99', 'p99.9', 'lost sent', 'lost received'];
function ports(parent, list) {
  const t = table(parent, HEADS);
  for (const p of list) {
    const row = make('tr', t, null, '', {host: p.host, rail: p.rail, transmit: p.transmit_gbps, receive: p.receive_gbps, p99: p.p99_us});
    make('td', row, `${p.host} rail ${p.rail}${p.device ? ' (' + p.device + ')' : ''}`);
    make('td', row, number(p.transmit_gbps), level(p.transmit_gbps, reference(p)));
    make('td', row, number(p.receive_gbps), level(p.receive_gbps, reference(p)));
    for (const v of [p.expected_gbps, p.lowest_window_gbps, p.p50_us, p.p99_us, p.p999_us]) make('td', row, number(v));
    for (const v of [p.sent_lost_per_packet, p.received_lost_per_packet]) make('td', row, share(v));
  }
}
const UNITS = 'Gb/s of payload, microseconds one way, packets sent again per packet (over TCP, congestion counts as well).';
ports(part(shown.length < R.hosts.length ? `Ports of ${shown.length} of ${R.hosts.length} hosts: those of faults, their peers, the first` : 'Numbers of the ports', UNITS),
  shown.flatMap(name => of_host[name]));
if (shown.length < R.hosts.length) later(`All ${R.ports.length} ports`, box => ports(box, order.flatMap(name => of_host[name] || [])));

// Pairs of the hosts that are shown.
const chosen = R.hosts.length <= MOST_IN_MATRIX ? R.hosts.map(h => h.host) : shown;
const index = {};
R.hosts.forEach((h, i) => { index[h.host] = i; });
for (let rail = 0; rail < R.rails; ++rail) {
  const rows = R.paths.filter(p => p.rail === rail && chosen.includes(R.hosts[p.from].host));
  if (!rows.length) continue;
  const draw = box => {
    const t = table(box, ['from \\ to', ...chosen]);
    for (const from of chosen) {
      const row = make('tr', t);
      make('td', row, from);
      const path = rows.find(p => p.from === index[from]);
      for (const to of chosen) {
        const hit = path && path.to.find(x => x[0] === index[to]);
        const gbps = hit ? hit[1] : null;
        const port = of_host[from].find(p => p.rail === rail);
        make('td', row, from === to ? '' : number(gbps), from === to ? '' : level(gbps, reference(port)),
          hit ? {from, to, rail, gbps} : undefined);
      }
    }
  };
  const title = `Rail ${rail}: Gb/s from (row) to (column)`;
  if (rail < 2) draw(part(title)); else later(title, draw);
}

later('Counters that changed', box => {
  const t = table(box, ['where', 'counter', 'change']);
  for (const c of R.counters.filter(c => R.hosts.length <= MOST_IN_MATRIX || shown.includes(c.host)))
    for (const name in c.changes) {
      const row = make('tr', t), v = c.changes[name];
      make('td', row, c.host + (c.rail === undefined ? '' : ' rail ' + c.rail));
      make('td', row, name);
      make('td', row, typeof v === 'object' ? `${v.change} (${v.state})` : v);
    }
});
later('Checks: the number of places where each could be evaluated', box => {
  const t = table(box, ['check', 'checked', 'of']);
  for (const id in R.coverage) {
    const row = make('tr', t);
    for (const v of [id, ...R.coverage[id]]) make('td', row, v);
  }
});
)";
}

}  // namespace weft::fabric
