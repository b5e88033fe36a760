"""Why over-personalisation happens (paper, section 4.3 and appendix C): what is measured over a run's records."""
