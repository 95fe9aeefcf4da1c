// Package coldstart measures how much larger the toolkit makes a function, and
// how much later it is ready: package once against package bare, which does the
// same by hand.
package coldstart
