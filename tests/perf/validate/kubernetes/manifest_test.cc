// The Kubernetes manifest: what must be alike in it is alike, and it is YAML where there is a
// parser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "support/process/shell.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

const std::string kManifest = WEFT_SOURCE_DIR "/perf/validate/kubernetes/job.yaml";

std::string manifest() {
  std::ostringstream text;
  text << std::ifstream(kManifest).rdbuf();
  return text.str();
}

// The value after `key` in the text.
std::string value_of(const std::string& text, const std::string& key) {
  std::smatch found;
  const std::regex line(key + ":? *\"?([^\"\\s#]+)\"?");
  return std::regex_search(text, found, line) ? found[1].str() : "";
}

TEST(KubernetesManifest, NumbersAndNamesAgree) {
  const std::string text = manifest();
  const std::string pods = value_of(text, "\\n  completions");
  EXPECT_NE(pods, "");
  EXPECT_EQ(value_of(text, "\\n  parallelism"), pods);
  EXPECT_EQ(value_of(text, "name: WEFT_SIZE\\n *value"), pods);
  const std::string name = value_of(text, "kind: Job\\nmetadata:\\n  name");
  const std::string service = value_of(text, "kind: Service\\nmetadata:\\n  name");
  EXPECT_EQ(value_of(text, "subdomain"), service);
  EXPECT_EQ(value_of(text, "name: WEFT_ROOT\\n *value"),
            name + "-0." + service + ":" + value_of(text, "\\n      port"));
  EXPECT_THAT(text, HasSubstr("completionMode: Indexed"));
  EXPECT_THAT(text, HasSubstr("clusterIP: None"));
  EXPECT_THAT(text, HasSubstr("batch.kubernetes.io/job-completion-index"));
  EXPECT_EQ(text.find('\t'), std::string::npos) << "YAML knows no tabs";
}

TEST(KubernetesManifest, IsYaml) {
  if (run("python3 -c 'import yaml'").exit_code != 0)
    GTEST_SKIP() << "missing capability: python3 with yaml";
  const Output output = run("python3 - " + kManifest + R"( <<'END'
import sys, yaml
service, job = yaml.safe_load_all(open(sys.argv[1]))
pod = job["spec"]["template"]["spec"]
box = pod["containers"][0]
assert service["spec"]["selector"] == job["spec"]["template"]["metadata"]["labels"]
assert pod["subdomain"] == service["metadata"]["name"]
assert pod["restartPolicy"] == "Never" and job["spec"]["backoffLimit"] == 0
assert {e["name"] for e in box["env"]} >= {"WEFT_RANK", "WEFT_SIZE", "WEFT_ROOT", "WEFT_SECRET"}
assert {m["name"] for m in box["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
print(box["args"][1])
END)");
  EXPECT_EQ(output.text, "validate\n");
}

}  // namespace
}  // namespace weft
