"""Addresses of the catalogue."""

from django.urls import path

from problems import views

urlpatterns = [
    path("", views.problem_list, name="problems"),
    path("<int:number>/", views.problem_page, name="problem"),
]
