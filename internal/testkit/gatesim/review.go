package gatesim

import "github.com/councild/councild/internal/simllm"

// Refund is a change with one hunk and without planted places.
const Refund = `diff --git a/pay/refund.go b/pay/refund.go
index 1111111..2222222 100644
--- a/pay/refund.go
+++ b/pay/refund.go
@@ -46,4 +46,5 @@ func remove(id string) {
 	i := slices.IndexFunc(refunds, func(r Refund) bool {
 		return r.ID == id
 	})
-	check(i)
+	i = max(i, 0)
+	refunds = append(refunds[:i], refunds[i+1:]...)
`

// Eager returns a model for changes without planted places. It reports a place in each hunk, confirms all findings of
// others, and calls all findings blocking.
func Eager(name string) simllm.Model {
	r := simllm.BaseReviewing()
	r.Tempted = 1
	r.FalseConfirms = 1
	r.FalseBlocks = 1
	r.BadQuote = 0
	return simllm.Model{Name: name, Reviewing: &r}
}

// OneFinder returns models of which only the first reports findings. The others confirm them.
func OneFinder(names ...string) []simllm.Model {
	models := make([]simllm.Model, len(names))
	for i, name := range names {
		models[i] = Eager(name)
		if i > 0 {
			models[i].Reviewing.Tempted = 0
		}
	}
	return models
}
