package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestEventBoard holds that the leaderboard leads to the board over the events of other organisations where they are taken in,
// and nowhere else, and that axe-core finds nothing in it.
func TestEventBoard(t *testing.T) {
	t.Parallel()
	dir, today := t.TempDir(), time.Now().UTC().Format(time.DateOnly)
	var lines strings.Builder
	for n := range 30 {
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
		fmt.Fprintf(&lines, `{"organisation":"org%d","at":"%sT00:00:00Z","event":{"schema_version":"1.1.0","event_id":%q,"session_id":%[3]q,`+
			`"day":%[2]q,"category":null,"rankings":[{"model":"maker/x","rank":1,"borda_normalized":%[4]v}],`+
			`"bias_indicators":{"position_variance":null,"length_correlation":0.25,"reviewer_agreement":null,"flags":[]}}}`+"\n",
			n%6, today, id, .5+float64(n%6)/20)
	}
	if err := os.WriteFile(filepath.Join(dir, "events-intake-"+today+".jsonl"), []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	with := daemon(t, map[string]string{"BIAS_STORE": filepath.Join(dir, "records.jsonl"), "EVENTS_INTAKE": "true"}, members()...)
	p := open(t, with, "#/leaderboard")
	p.says("#leaderboard", "Leaderboard from the events of other organisations")
	p.do(chromedp.Click(chromedp.CSS(`#leaderboard a[href="#/leaderboard?scope=events"]`)))
	p.says("#leaderboard", "A row needs at least 5 organisations with 5 sessions each.")
	p.says("#leaderboard", "maker/x")
	p.says("#leaderboard", "Correlation of length and score")
	p.says("#leaderboard", today)
	for _, violation := range p.violations() {
		t.Error(violation)
	}
	p.do(chromedp.Click(chromedp.CSS(`#leaderboard a[href="#/leaderboard?scope=events&days=7"]`)))
	p.until(`document.querySelector('#leaderboard [aria-current]')?.textContent === "7"`)

	p = open(t, daemon(t, nil, members()...), "#/leaderboard")
	p.says("#leaderboard", "No session has a ballot that counts yet.")
	if strings.Contains(p.text("#leaderboard"), "events of other organisations") {
		t.Error("there is a way to a board that does not exist")
	}
}
