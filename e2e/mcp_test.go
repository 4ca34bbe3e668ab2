package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/simllm"
)

// TestMCPClients runs the checks of npm's MCP clients, over HTTP and on stdio, against a
// daemon whose sessions take longer than the time-outs of the checks. It is not parallel: beside browsers
// that fill the processors, the time-outs would pass between two signs of progress.
func TestMCPClients(t *testing.T) {
	const one, two = "one:a-token-of-sixteen-and-more", "two:another-token-of-sixteen"
	models := members()
	for i := range models {
		models[i].Latency = simllm.Latency{Median: 800 * time.Millisecond}
		models[i].Reply = func(task simllm.Task) (string, bool) {
			if strings.Contains(task.Question, "slow") {
				<-t.Context().Done()
			}
			return "", strings.Contains(task.Question, "broken") // An empty reply is a failure.
		}
	}
	c := newCouncild(t, settings(t, map[string]string{"API_TOKENS": one + "," + two, "MAX_QUERY_BYTES": "1000"}, models))
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", "mcp.test.js")
	cmd.Env = append(os.Environ(), "COUNCILD_URL="+c.url, "COUNCILD_COMMAND="+self,
		"COUNCILD_TOKEN_ONE="+one[len("one:"):], "COUNCILD_TOKEN_TWO="+two[len("two:"):])
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	} else {
		t.Logf("%s", out)
	}
}
