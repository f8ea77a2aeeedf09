module my-owner

go 1.24
