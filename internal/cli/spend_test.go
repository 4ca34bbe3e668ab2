package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSpend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spend.jsonl")
	const ledger = `{"type":"close","day":"2026-11-22","session":"1","token":"=x","council":"a,b;a","limit_usd":null,"calls":[` +
		`{"stage":"stage1","model":"a","usd":0.000000000001,"source":"provider"},{"stage":"stage1","model":"b","usd":null,"source":"bound"}]}` + "\n" +
		`{"type":"open","day":"2026-11-23","session":"4","token":"y","council":"c,d;c","limit_usd":3}` + "\n"
	if err := os.WriteFile(path, []byte(ledger), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string // parts, separated by "|"
	}{
		{[]string{"--by", "token"}, "3          3        0      0         1  y|of which at most 3 are uncertain; the cost of 1 calls is unknown"},
		{[]string{"--format", "csv", "--by", "token"}, "token,sessions,calls,total_usd|y,1,0,3,3,0|'=x,1,2,0.000000000001,0,1"},
		{[]string{"--format", "json", "--token", "=x"}, `"total_usd": 0.000000000001`},
	} {
		code, stdout, stderr := command(t, append([]string{"spend", "--days", "0", "--input", path}, c.args...)...)
		for part := range strings.SplitSeq(c.want, "|") {
			if code != 0 || !strings.Contains(stdout, part) {
				t.Errorf("%q: exit code %d, %q is missing in %s%s", c.args, code, part, stdout, stderr)
			}
		}
	}
	if code, stdout, _ := command(t, "spend", "--input", path+".none"); code != 0 || !strings.Contains(stdout, "Total: 0 US dollars") {
		t.Errorf("without a file: exit code %d, %s", code, stdout)
	}
	if code, _, stderr := command(t, "spend", "--days", "-1"); code != 2 || !strings.Contains(stderr, "--days") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestPrices(t *testing.T) {
	t.Setenv("LLM_COUNCIL_MODELS", "openai/gpt-5,x/none")
	t.Setenv("LLM_COUNCIL_PRICES", "openai/gpt-5=1/10")
	path := filepath.Join(t.TempDir(), "prices.json")
	const list = `{"gpt-5":{"input_cost_per_token":1.25e-06,"output_cost_per_token":1e-05}}`
	if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command(t, "prices", "--from", path)
	for _, want := range []string{
		"openai/gpt-5: {as_of: 20", "input: 1.25, output: 10}", "# differs from what is set: {input: 1, output: 10}",
		"# x/none: no price was found", "# LLM_COUNCIL_PRICES=openai/gpt-5=1.25/10@20",
	} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %q is missing in %s%s", code, want, stdout, stderr)
		}
	}
	if err := os.WriteFile(path, []byte(`{"models":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command(t, "prices", "--from", path); code != 1 || !strings.Contains(stderr, "LiteLLM") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
