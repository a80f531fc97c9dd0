// The Job of perf/validate/kubernetes: host network, RDMA devices, a consistent number of ranks,
// and success only with a verdict.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"

namespace weft {
namespace {

using nlohmann::json;
using ::testing::Contains;

constexpr const char* kManifest = WEFT_SOURCE_DIR "/perf/validate/kubernetes/job.yaml";

class KubernetesJob : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run("python3 -c 'import yaml'").exit_code != 0)
      GTEST_SKIP() << "missing capability: python3 with yaml";
    const Output o =
        run(std::string("python3 -c 'import json, sys, yaml; "
                        "print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
                        "' ") +
            kManifest);
    ASSERT_EQ(o.exit_code, 0) << o.text;
    for (const json& document : json::parse(o.text))
      (document["kind"] == "Job" ? job_ : service_) = document["spec"];
    pod_ = job_["template"]["spec"];
    weft_ = pod_["containers"].at(0);
  }
  json variable(const std::string& name) const {
    for (const json& one : weft_["env"])
      if (one["name"] == name) return one;
    return {};
  }
  json job_, service_, pod_, weft_;
};

TEST_F(KubernetesJob, IsOnTheHostsNetworkWithTheirDevices) {
  EXPECT_EQ(pod_["hostNetwork"], true);
  EXPECT_EQ(pod_["dnsPolicy"], "ClusterFirstWithHostNet");
  int rdma = 0;
  for (const auto& limit : weft_["resources"]["limits"].items())
    rdma += limit.key().starts_with("rdma/");
  EXPECT_EQ(rdma, 1);
  EXPECT_THAT(weft_["securityContext"]["capabilities"]["add"], Contains("IPC_LOCK"));
}

TEST_F(KubernetesJob, HasARankForEachPodAndAPodForEachNode) {
  EXPECT_EQ(job_["completionMode"], "Indexed");
  EXPECT_EQ(job_["completions"], job_["parallelism"]);
  EXPECT_EQ(variable("WEFT_SIZE")["value"], std::to_string(job_["completions"].get<int>()));
  EXPECT_TRUE(pod_["affinity"]["podAntiAffinity"].contains(
      "requiredDuringSchedulingIgnoredDuringExecution"));
  const std::string port = std::to_string(service_["ports"][0]["port"].get<int>());
  EXPECT_EQ(variable("WEFT_ROOT")["value"], "weft-validate-0.weft-validate:" + port);
}

// A pod that dies, never starts or lacks its secret fails the Job; a retry would hide a verdict.
TEST_F(KubernetesJob, PassesWithAVerdictAlone) {
  EXPECT_EQ(job_["backoffLimit"], 0);
  EXPECT_EQ(pod_["restartPolicy"], "Never");
  EXPECT_GT(job_["activeDeadlineSeconds"].get<int>(), 60);
  EXPECT_FALSE(job_.contains("podFailurePolicy")) << "it could ignore an exit code";
  EXPECT_FALSE(job_.contains("successPolicy"));
  EXPECT_FALSE(variable("WEFT_SECRET")["valueFrom"]["secretKeyRef"].value("optional", false));
  EXPECT_FALSE(weft_.contains("command")) << "a shell could hide the exit code of weft";
  EXPECT_EQ(weft_["args"][0], "validate");
  // One rank of four, without a root.
  std::string args;
  for (const json& word : weft_["args"])
    args += " " + (word == "/report/weft-validate.json" ? "/dev/null" : word.get<std::string>());
  const Output alone =
      run("WEFT_RANK=1 WEFT_SIZE=4 WEFT_LOCAL_RANK=0 WEFT_SECRET=s "
          "WEFT_ROOT=127.0.0.1:9 timeout 3 " WEFT_BINARY +
          args);
  EXPECT_NE(alone.exit_code, 0) << alone.text;
}

}  // namespace
}  // namespace weft
