package httpapi

import (
	"strconv"
	"testing"

	"github.com/councild/councild/internal/council"
)

// TestSearchIsBounded holds that one request reads a bounded number of answers, and that the next one goes on where it
// ended.
func TestSearchIsBounded(t *testing.T) {
	var all []council.Summary
	for i := range 3*maxSearched + 7 {
		id := strconv.Itoa(i)
		all = append(all, council.Summary{ID: id, Thread: id, Status: council.StatusComplete})
	}
	last := all[len(all)-1].ID
	for before, requests := "", 1; ; requests++ {
		f := filter{search: "needle", read: func(id string) (string, error) {
			if id == last {
				return "A Needle.", nil
			}
			return "Hay.", nil
		}}
		groups, begin := grouped(all, false, before)
		list, err := f.list(groups[begin:], 10)
		if err != nil || f.reads > maxSearched+1 {
			t.Fatalf("%d reads: %v", f.reads, err)
		}
		if !list.More {
			if len(list.Sessions) != 1 || list.Sessions[0].ID != last || list.Next != "" || requests != 4 {
				t.Errorf("%d requests find %v", requests, list)
			}
			return
		}
		if len(list.Sessions) != 0 || list.Next == before {
			t.Fatalf("got %v", list)
		}
		before = list.Next
	}
}
