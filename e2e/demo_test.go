package e2e

import (
	"strings"
	"testing"
)

// The page of the demo says that it is one, and offers the questions that have written texts. A click asks one.
func TestDemo(t *testing.T) {
	p := open(t, demo(t), "")
	p.says("#demo", "Demo. The models are simulated, and nothing is paid.")
	p.until(`document.querySelectorAll("#examples-list button").length === 8 && !document.querySelector("#demo").hidden`)
	value[any](p, `[...document.querySelectorAll("#examples-list button")].find((b) => b.textContent.includes("SQLite")).click()`)
	p.until(`location.hash.startsWith("#/session/")`)
	p.says("#session", "Written for the demo.")
	p.says("#session", "Disputed")
	if p.session()["status"] != "complete" || !strings.Contains(p.text("#demo"), "Demo.") {
		t.Errorf("the page reads %s", p.text("body"))
	}
}
