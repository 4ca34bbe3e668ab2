package bias

import (
	"strings"
	"testing"
)

// A panic in a part of a report is the problem of whoever asked for the report,
// after the other parts have ended; the process goes on.
func TestFaultF40Report(t *testing.T) {
	others := make(chan struct{})
	done := 0
	var raised any
	func() {
		defer func() { raised = recover() }()
		runTogether(func() {
			defer close(others)
			panic("a defect")
		}, func() {
			<-others
			done++
		})
	}()
	text, _ := raised.(string)
	if !strings.Contains(text, "a defect") || !strings.Contains(text, "parts_test.go") {
		t.Errorf("the panic that was raised is %v", raised)
	}
	if done != 1 {
		t.Error("the other part did not end")
	}
	t.Log("fault F40: a part of a report panicked: its caller recovered, the process goes on (promised: an error of that request)")
}
