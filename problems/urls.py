"""Addresses of the catalogue."""

from django.urls import path

from problems import views

urlpatterns = [
    path("", views.problem_list, name="problems"),
    path("<int:number>/", views.problem_page, name="problem"),
    path("<int:number>/prompt/", views.prompt_page, name="problem-prompt"),
    path("<int:number>/prompt.md", views.prompt_text, name="problem-prompt-text"),
]
