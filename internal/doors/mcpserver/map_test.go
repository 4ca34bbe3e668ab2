package mcpserver_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/simllm"
	"github.com/councild/councild/internal/testkit/daemontest"
)

// The tool and our own interface say what is disputed. OpenAI's endpoints ask for no map, and show none.
func TestMap(t *testing.T) {
	models := daemontest.Members()[:3]
	for i := range models {
		models[i].Facts = []simllm.Fact{{Name: "the port", Value: []string{"80", "8080"}[i%2]}}
	}
	d := daemontest.Start(t, map[string]string{"BASE_URL": daemontest.Provider(t, models...).URL(), "MODELS": "a,b,c"})
	p := connect(t, d.URL(), "", "2026-07-28")
	asked := map[string]any{"question": "Which port?"}
	r := p.must("council", asked)
	if len(r.Disputed) != 1 || len(r.Disputed[0].Sides) != 2 || !strings.Contains(*r.Answer, "Simulated") || strings.Contains(*r.Answer, "=== MAP") {
		t.Errorf("the result is %+v", r)
	}
	if _, text, _ := p.call("council", asked); !strings.Contains(text, "Disputed, as the chairman reads it: What is the value of the port?\n") ||
		!strings.Contains(text, `- 8080: b says "The value of the port is 8080.".`) {
		t.Errorf("the text is %s", text)
	}

	_, events := d.Call(t, "POST", "/v1/council", `{"query":"Which port?","stream":true}`)
	done, after, _ := strings.Cut(string(events), "event: stage3.done\n")
	line, last, _ := strings.Cut(after, "event: stage3.map\ndata: ")
	var m council.Map
	if err := json.NewDecoder(strings.NewReader(last)).Decode(&m); err != nil || len(m.Disputed) != 1 || strings.Contains(done, "=== MAP") {
		t.Errorf("%v: the map is %+v; before it %s", err, m, line)
	}
	if !strings.Contains(last, "event: session.done\n") || !strings.Contains(last, `"map":{"agreed":[`) {
		t.Errorf("behind the map are %s", last)
	}

	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"council","messages":[{"role":"user","content":"Which port?"}]}`,
		"/v1/responses":        `{"model":"council","input":"Which port?"}`,
	} {
		if _, data := d.Call(t, "POST", path, body); strings.Contains(string(data), "=== MAP") ||
			strings.Contains(string(data), "agreed") || !strings.Contains(string(data), "Simulated synthesis") {
			t.Errorf("%s answers %s", path, data)
		}
	}
	for _, text := range []string{`{"query":"Which port?","mode":"ranked"}`, `{"query":"Which port?","output_schema":{"type":"object"}}`} {
		_, data := d.Call(t, "POST", "/v1/council", text)
		if strings.Contains(string(data), `"map":{`) || strings.Contains(string(data), "synthesis-2") {
			t.Errorf("%s is answered with %s", text, data)
		}
	}
}
