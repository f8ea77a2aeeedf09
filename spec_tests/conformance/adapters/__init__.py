"""What stands between the kit and a subject: transports, names, the first questions, the page and its examples."""
