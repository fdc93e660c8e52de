// What tests of the package capstan_test need of this one.

package capstan

// Reconciled calls what is registered as the daemon would, for tests of other packages.
func Reconciled(run Run, primary string) error {
	_, err := serveReconcile(run, primary)
	return err
}
