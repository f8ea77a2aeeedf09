"""The course "build your own commit owner": an exercise folder, its pages, and the kit as the judge."""
