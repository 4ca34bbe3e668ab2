package daemon_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/councild/councild/internal/testkit/daemontest"
)

// listsModels starts a provider that lists what its argument says, and has nothing else.
func listsModels(t *testing.T, list string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if list == "" || r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(list))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

// The log and /readyz name configured models that end soon or that their provider lacks, and /readyz stays green. What proves
// nothing is not said.
func TestModelsThatEnd(t *testing.T) {
	day := func(days int) string { return time.Now().UTC().AddDate(0, 0, days).Format(time.DateOnly) }
	ending := listsModels(t, fmt.Sprintf(`{"data":[{"id":"soon","shutdown_date":%q},{"id":"over","shutdown_date":%q},{"id":"late","shutdown_date":%q},`+
		`{"id":"x-2026-08-07"},{"id":"fine","shutdown_date":null}]}`, day(13), day(-20), day(61)))
	part := listsModels(t, `{"data":[{"id":"fine"}],"has_more":true}`)
	for name, env := range map[string]map[string]string{
		"without limits": {},
		"with a limit, for which the list is asked for prices": {"MAX_COST_USD": "1"},
	} {
		t.Run(name, func(t *testing.T) {
			env["BASE_URL"] = ending
			env["PROVIDERS"] = "part=" + part + ",none=" + listsModels(t, "") + ",down=http://127.0.0.1:1/v1"
			env["MODELS"] = "soon,over,late,x,fine,gone,part:other,none:a,down:a,sim:amber"
			env["EMBEDDING_MODEL"] = "embeds"
			d := daemontest.Start(t, env)
			var said string
			eventually(t, "what the lists say is said", slack*5*time.Second, func() bool {
				status, data := d.Call(t, "GET", "/readyz", "")
				said = string(data)
				if status != http.StatusOK || !strings.Contains(said, `"ready":true`) {
					t.Fatalf("readiness is %d: %s", status, said)
				}
				return strings.Contains(said, "model_missing")
			})
			for _, want := range []string{
				`{"code":"model_missing","message":"not in the list of their provider: gone; councild check says what to write instead"}`,
				`{"code":"model_ends","message":"providers will shut down models: soon (its provider shuts it down on ` + day(13) + `), over (its provider shut it down on ` +
					day(-20) + `); configure others"}`,
			} {
				if !strings.Contains(said, want) {
					t.Errorf("/readyz does not say %s: %s", want, said)
				}
			}
			eventually(t, "the log says it", slack*5*time.Second, func() bool { return strings.Contains(d.Log.String(), `"model":"gone"`) })
			d.End(t)
			log := d.Log.String()
			for _, want := range []string{
				`the provider will shut down a configured model; configure another one","model":"soon","provider":"shuts it down on ` + day(13) + `"`,
				`the provider will shut down a configured model; configure another one","model":"over","provider":"shut it down on ` + day(-20) + `"`,
				`a provider does not list a configured model; run councild check to see what to write instead","model":"gone"`,
			} {
				if strings.Count(log, want) != 1 {
					t.Errorf("the log says %d times %s", strings.Count(log, want), want)
				}
			}
			for _, quiet := range []string{"late", "x", "fine", "part:other", "none:a", "down:a", "sim:amber", "embeds"} {
				if strings.Contains(log, `"model":"`+quiet+`"`) {
					t.Errorf("the log says something of %s", quiet)
				}
			}
		})
	}
}

// A provider that does not answer keeps no daemon from starting, from being ready and from ending.
func TestListThatNeverComes(t *testing.T) {
	asked := make(chan struct{}, 8)
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(hang.Close)
	d := daemontest.Start(t, map[string]string{"BASE_URL": hang.URL + "/v1", "MODELS": "a,b"})
	<-asked
	if status, data := d.Call(t, "GET", "/readyz", ""); status != http.StatusOK || !strings.Contains(string(data), `"reasons":[]`) {
		t.Errorf("%d %s", status, data)
	}
	d.End(t)
}

// What the lists say is said again once a day.
func TestModelsAreLookedUpDaily(t *testing.T) {
	inBubble(t, scenario{env: map[string]string{"MODELS": "a,b,missing"}}, func(b *bubble) {
		time.Sleep(2*24*time.Hour + time.Minute)
		const line = `a provider does not list a configured model; run councild check to see what to write instead","model":"missing"`
		if n := strings.Count(b.Log.String(), line); n != 3 {
			t.Errorf("it was said %d times in two days", n)
		}
	})
}
