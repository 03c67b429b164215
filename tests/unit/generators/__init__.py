"""Tests of the generators that stand around others or on their own."""
