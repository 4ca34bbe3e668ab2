package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/councild/councild/internal/daemon"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// LoadConfig reports what settings name and is not there, beside other problems.
func TestLoadConfig(t *testing.T) {
	lexicon := filepath.Join(t.TempDir(), "lexicon.json")
	if err := os.WriteFile(lexicon, []byte(`{"age": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		env  map[string]string
		want string
	}{
		"nothing wrong":              {nil, ""},
		"no lexicon there":           {map[string]string{"LEXICON": "missing.json"}, `LLM_COUNCIL_LEXICON: "missing.json" cannot be read`},
		"a device":                   {map[string]string{"LEXICON": "/dev/null"}, `LLM_COUNCIL_LEXICON: "/dev/null" is not a regular file`},
		"not a lexicon":              {map[string]string{"LEXICON": lexicon}, "is no lexicon"},
		"a lexicon for requests":     {map[string]string{"LEXICON": lexicon, "DEMOGRAPHICS": "off"}, "is no lexicon"},
		"an unknown simulation":      {map[string]string{"CHAIRMAN": "sim:ambr"}, "there is no simulated model sim:ambr: use sim:amber, "},
		"settings of a simulation":   {map[string]string{"CHAIRMAN": "sim:amber?accuracy=.7&insight=1"}, ""},
		"settings of an unknown one": {map[string]string{"CHAIRMAN": "sim:ambr?accuracy=.7"}, "there is no simulated model sim:ambr?"},
		"wrong settings of one": {
			map[string]string{"CHAIRMAN": "sim:amber?accuracy=7"},
			"the simulated model sim:amber?accuracy=7: accuracy is not a number from 0 to 1: write one, as in ?accuracy=.7",
		},
	} {
		daemontest.Setenv(t, tt.env)
		_, err := daemon.LoadConfig(simllm.Default())
		if tt.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
